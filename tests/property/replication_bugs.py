"""Planted bugs: each replaces one function of the rules by a wrong one, after bugs of real systems.

A simulation that does not find these bugs proves nothing. `seeds` is the number of seeds that may be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.server.metadata.controller import alter_partition, brokers, partition_change
from barnabas.server.metadata.controller.partition_change import Elected
from barnabas.server.replication.rules import follower, isr, leader, watermark
from tests.property.replication_world import World


@dataclass(frozen=True)
class Bug:
    """The replaced functions, and the number of seeds within which the simulation must find the bug."""

    name: str
    seeds: int
    patches: tuple[tuple[Any, str, Callable[..., Any]], ...]


_follow = World._follow
_on_answer = follower.on_answer
_high_watermark = watermark.high_watermark
_on_outcome = isr.on_outcome
_problem = alter_partition._problem
_elect = partition_change.elect
_records_without = brokers.records_without_broker
_with_leader = partition_change._with_leader
_propose = isr._propose
_last_known = partition_change.last_known_leader_may_lead
_track_eligible = partition_change._track_eligible


def acknowledge_at_the_leader(state: Any, required: int, high: int, least: int) -> Any:
    return ErrorCode.NONE


def cut_at_the_watermark(self: World, broker: Any, state: Any) -> None:
    """Kafka before KIP-101."""
    if broker.follower is None or broker.follower.leader_epoch < state.leader_epoch:
        broker.log.truncate(max(broker.high_watermark, broker.log.log_start_offset))
    _follow(self, broker, state)


def ignore_divergence(state: Any, asked: Any, answer: Any, log: Any) -> Any:
    if answer.diverging is not None:
        return state, None
    return _on_answer(state, asked, answer, log)


def elect_whoever_is_there(partition: Any, target: Any, rules: Any, election: Any) -> Any:
    found = _elect(partition, target, rules, election)
    if found.leader != -1:
        return found
    return Elected(next((b for b in target.replicas if rules.is_usable(b)), -1))


def committed_isr_only(state: Any, end: int, current: int, **more: Any) -> int:
    return _high_watermark(replace(state, proposed_isr=frozenset()), end, current, **{**more, "joining": ()})


def ignore_min_insync(state: Any, end: int, current: int, **more: Any) -> int:
    return _high_watermark(state, end, current, **{**more, "min_insync_replicas": 1})


def watermark_of_the_fastest(state: Any, end: int, current: int, **_: Any) -> int:
    return max(current, *(p.log_end_offset for b, p in state.followers.items() if b in state.isr), current)


def watermark_goes_back(state: Any, end: int, current: int, **more: Any) -> int:
    return _high_watermark(state, end, 0, **more)


def in_sync_below_the_watermark(state: Any, broker: int, high: int) -> bool:
    return state.progress(broker).log_end_offset >= state.epoch_start_offset


def in_sync_before_the_epoch_start(state: Any, broker: int, high: int) -> bool:
    return state.progress(broker).log_end_offset >= high


def any_epoch_will_do(image: Any, partition: Any, wanted: Any, sender: int, members: Any) -> Any:
    return _problem(image, partition, wanted, sender, dict.fromkeys(members, -1))


def fenced_by_its_lifetime_only(state: Any, broker: int, active: Any) -> bool:
    return broker in active


def any_leader_will_do(image: Any, partition: Any, wanted: Any, sender: int, members: Any) -> Any:
    """The controller checks neither the leader epoch nor the partition epoch."""
    current = replace_message(wanted, leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch)
    alive = {partition.leader: -1, **members}
    return _problem(image, partition, current, partition.leader, alive if partition.leader >= 0 else members)


def replace_message(message: Any, **changes: Any) -> Any:
    names = {name: getattr(message, name) for name in ("partition_index", "leader_epoch", "partition_epoch")}
    names["new_isr_with_epochs"] = message.new_isr_with_epochs
    return type(message)(**{**names, **changes})


def crash_is_no_reason(image: Any, broker: int, ctx: Any, *, unclean: bool = False, limit: int | None = None) -> Any:
    return _records_without(image, broker, ctx, limit=limit)


def whoever_is_not_registered_lost_nothing(
    image: Any, broker: int, ctx: Any, *, unclean: bool = False, **more: Any
) -> Any:
    """An unclean restart of an unregistered broker counts as clean, because its previous epoch is unknown."""
    return _records_without(image, broker, ctx, unclean=unclean and broker in image.brokers, **more)


def forget_the_unanswered(state: Any, proposal: Any, error: Any, answer: Any = None) -> Any:
    if error is ErrorCode.REQUEST_TIMED_OUT and state.inflight == proposal:
        return replace(state, inflight=None, proposed_isr=frozenset()), isr.Next.DONE
    return _on_outcome(state, proposal, error, answer)


def shrink_before_it_is_committed(state: Any, members: Any, active: Any) -> Any:
    after, proposal = _propose(state, members, active)
    return replace(after, isr=state.isr & members), proposal


def eligible_stay_in_sync(partition: Any, target: Any, elected: Any, rules: Any) -> Any:
    """A member of the ELR is elected, and all eligible replicas are in sync at once."""
    after, seat = _with_leader(partition, target, elected, rules)
    return (replace(after, isr=(*after.isr, *(b for b in target.replicas if b not in after.isr))), seat)


def nobody_is_eligible_any_more(partition: Any, target: Any, rules: Any) -> Any:
    """The feature is disabled, and its lists are removed before they are needed."""
    return _track_eligible(partition, target, rules) if rules.elr_enabled else replace(target, elr=())


def only_while_it_is_on(partition: Any, target: Any, rules: Any) -> bool:
    return rules.elr_enabled and _last_known(partition, target, rules)


BUGS = (
    Bug("cut at the high watermark", 10, ((World, "_follow", cut_at_the_watermark),)),
    Bug("ignore divergence", 20, ((follower, "on_answer", ignore_divergence),)),
    Bug("acknowledge before the ISR has it", 5, ((leader, "acknowledge", acknowledge_at_the_leader),)),
    Bug("elect outside ISR and ELR", 20, ((partition_change, "elect", elect_whoever_is_there),)),
    Bug("eligible after an unclean shutdown", 20, ((brokers, "records_without_broker", crash_is_no_reason),)),
    Bug(
        "eligible after it was unregistered",
        20,
        ((brokers, "records_without_broker", whoever_is_not_registered_lost_nothing),),
    ),
    Bug(
        "forget the eligible as soon as it is off",
        80,
        (
            (partition_change, "_track_eligible", nobody_is_eligible_any_more),
            (partition_change, "last_known_leader_may_lead", only_while_it_is_on),
        ),
    ),
    Bug("everyone in sync after an election", 20, ((partition_change, "_with_leader", eligible_stay_in_sync),)),
    Bug("watermark on the committed ISR only", 10, ((watermark, "high_watermark", committed_isr_only),)),
    Bug("watermark moves below min.insync.replicas", 20, ((watermark, "high_watermark", ignore_min_insync),)),
    Bug("watermark of the fastest follower", 5, ((watermark, "high_watermark", watermark_of_the_fastest),)),
    Bug("watermark goes back", 5, ((watermark, "high_watermark", watermark_goes_back),)),
    Bug("expand below the watermark", 10, ((isr, "is_in_sync", in_sync_below_the_watermark),)),
    Bug("expand before the epoch start", 20, ((isr, "is_in_sync", in_sync_before_the_epoch_start),)),
    Bug("shrink before it is committed", 10, ((isr, "_propose", shrink_before_it_is_committed),)),
    Bug("forget a proposal that was not answered", 80, ((isr, "on_outcome", forget_the_unanswered),)),
    Bug(
        "skip the broker epoch check",
        80,
        ((alter_partition, "_problem", any_epoch_will_do), (isr, "is_eligible", fenced_by_its_lifetime_only)),
    ),
    Bug("skip leader and partition epochs at the controller", 20, ((alter_partition, "_problem", any_leader_will_do),)),
)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Plant the bug."""
    with ExitStack() as stack:
        for module, function, wrong in bug.patches:
            stack.enter_context(patch.object(module, function, wrong))
        yield
