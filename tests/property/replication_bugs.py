"""Planted bugs: each replaces one function of the rules by one that is wrong as real systems have been wrong.

A simulation that does not notice them proves nothing. `seeds` is within how many it must.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from barnabas.core.errors import ErrorCode
from barnabas.metadata.controller import alter_partition, brokers, partition_change
from barnabas.metadata.controller.partition_change import Elected
from barnabas.replication.rules import follower, isr, leader, watermark


@dataclass(frozen=True)
class Bug:
    """What is replaced by what, and what must notice it."""

    name: str
    module: Any
    function: str
    wrong: Callable[..., Any]
    seeds: int


def _cut_at_the_watermark(state: Any, leader_id: int, leader_epoch: int) -> Any:
    """KIP-101's reason: on becoming a follower, cut at the high watermark (here: by a divergence that never was)."""
    return _follow(state, leader_id, leader_epoch)


_follow = follower.follow
_on_answer = follower.on_answer
_divergence_point = follower.divergence_point
_high_watermark = watermark.high_watermark
_acknowledge = leader.acknowledge
_is_in_sync = isr.is_in_sync
_is_eligible = isr.is_eligible
_on_outcome = isr.on_outcome
_problem = alter_partition._problem
_elect = partition_change.elect
_records_without = brokers.records_without_broker
_check_epoch = leader.check_leader_epoch
_seat = partition_change._seat
_propose = isr._propose


def acknowledge_at_the_leader(state: Any, required: int, high: int, least: int) -> Any:
    return ErrorCode.NONE


def cut_to_what_the_leader_has_committed(end: Any, log: Any) -> int:
    """Kafka before KIP-101, nearly: too far, and by offsets instead of epochs."""
    return max(log.log_start_offset, log.log_end_offset - 3)


def ignore_divergence(state: Any, asked: Any, answer: Any, log: Any) -> Any:
    if answer.diverging is not None:
        return state, None
    return _on_answer(state, asked, answer, log)


def cut_to_the_leaders_epoch_end_only(end: Any, log: Any) -> int:
    """KIP-101 before KIP-279: does not ask whether this log knows the epoch."""
    return int(min(end.end_offset, log.log_end_offset))


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


def old_partition_epoch_will_do(image: Any, partition: Any, wanted: Any, sender: int, members: Any) -> Any:
    fresh = replace_message(wanted, partition_epoch=partition.partition_epoch)
    return _problem(image, partition, fresh, sender, members)


def replace_message(message: Any, **changes: Any) -> Any:
    names = {name: getattr(message, name) for name in ("partition_index", "leader_epoch", "partition_epoch")}
    names["new_isr_with_epochs"] = message.new_isr_with_epochs
    return type(message)(**{**names, **changes})


def crash_is_no_reason(image: Any, broker: int, ctx: Any, *, unclean: bool = False) -> Any:
    return _records_without(image, broker, ctx)


def forget_the_unanswered(state: Any, proposal: Any, error: Any, answer: Any = None) -> Any:
    if error is ErrorCode.REQUEST_TIMED_OUT and state.inflight == proposal:
        return replace(state, inflight=None, proposed_isr=frozenset()), isr.Next.DONE
    return _on_outcome(state, proposal, error, answer)


def shrink_before_it_is_committed(state: Any, members: Any, active: Any) -> Any:
    after, proposal = _propose(state, members, active)
    return replace(after, isr=state.isr & members), proposal


def no_fencing(local: int, requested: int) -> Any:
    return ErrorCode.NONE


def answers_of_any_time(state: Any, asked: Any, log: Any) -> bool:
    return bool(asked.fetch_offset == log.log_end_offset)


def eligible_stay_in_sync(partition: Any, target: Any, elected: Any, rules: Any) -> Any:
    """From the ELR into the lead, with everyone eligible in sync at once."""
    after, seat = _seat(partition, target, elected, rules)
    return (replace(after, isr=(*after.isr, *(b for b in target.replicas if b not in after.isr))), seat)


BUGS = (
    Bug("acknowledge before the ISR has it", leader, "acknowledge", acknowledge_at_the_leader, 5),
    Bug("cut the log by offsets, not by epochs", follower, "divergence_point", cut_to_what_the_leader_has_committed, 40),
    Bug("ignore divergence", follower, "on_answer", ignore_divergence, 40),
    Bug("KIP-101 without KIP-279", follower, "divergence_point", cut_to_the_leaders_epoch_end_only, 40),
    Bug("elect outside ISR and ELR", partition_change, "elect", elect_whoever_is_there, 40),
    Bug("watermark on the committed ISR only", watermark, "high_watermark", committed_isr_only, 40),
    Bug("watermark moves below min.insync.replicas", watermark, "high_watermark", ignore_min_insync, 40),
    Bug("watermark of the fastest follower", watermark, "high_watermark", watermark_of_the_fastest, 5),
    Bug("watermark goes back", watermark, "high_watermark", watermark_goes_back, 20),
    Bug("expand below the watermark", isr, "is_in_sync", in_sync_below_the_watermark, 40),
    Bug("expand before the epoch start", isr, "is_in_sync", in_sync_before_the_epoch_start, 40),
    Bug("skip the broker epoch check", alter_partition, "_problem", any_epoch_will_do, 40),
    Bug("skip the partition epoch check", alter_partition, "_problem", old_partition_epoch_will_do, 40),
    Bug("eligible after an unclean shutdown", brokers, "records_without_broker", crash_is_no_reason, 40),
    Bug("forget a proposal that was not answered", isr, "on_outcome", forget_the_unanswered, 40),
    Bug("shrink before it is committed", isr, "_propose", shrink_before_it_is_committed, 40),
    Bug("no leader epoch fence", leader, "check_leader_epoch", no_fencing, 40),
    Bug("apply answers of an earlier role", follower, "_is_current", answers_of_any_time, 40),
    Bug("everyone in sync after an election", partition_change, "_seat", eligible_stay_in_sync, 40),
)


def planted(bug: Bug) -> Any:
    """A context in which the bug is there."""
    return patch.object(bug.module, bug.function, bug.wrong)
