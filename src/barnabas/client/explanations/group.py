"""Codec: facts about a group -> sentences: why it rebalances, for which members it waits, when its offsets expire.

All sentences of `barnabas groups why` are written in this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.client.explanations.words import ago, counted, duration, moment

if TYPE_CHECKING:
    from barnabas.client.admin.maintenance import GroupFacts, HoldingFacts, MemberFacts

NAMED_MAX: Final = 5
"""At most this many members or partitions are named; the others are counted."""

PENDING: Final = {
    "come-back": "was given a member id but has not rejoined with it",
    "rejoin": "has not rejoined",
    "assign": "leads the group and has not sent the assignment",
    "sync": "has not fetched its assignment",
    "revoke": "has not released the partitions that it must revoke",
    "release": "waits for partitions that other members must release first",
    "heartbeat": "receives its new assignment with its next heartbeat",
    "return": "is a static member that has left temporarily; its partitions are kept for it",
}


def answers(facts: GroupFacts) -> dict[str, list[str]]:
    """The sentences for each question: `state`, `members`, `offsets`."""
    return {"state": list(state(facts)), "members": list(members(facts)), "offsets": list(offsets(facts))}


def state(facts: GroupFacts) -> Iterator[str]:
    """What the group is doing, since when, and why."""
    since = f" since {moment(facts.state_since_ms)}, {ago(facts.state_since_ms, facts.now_ms)}"
    kind = f"{facts.group_type} group"
    epoch = "generation" if facts.group_type == "classic" else "epoch"
    present = sum(member.pending != "come-back" for member in facts.members)
    yield (
        f"{facts.group_id} is a {kind} with {counted(present, 'member')}, "
        f"{epoch} {facts.epoch}, in state {facts.state}{since if facts.state_since_ms >= 0 else ''}."
    )
    if facts.reason:
        yield f"{'The group rebalances' if facts.phase else 'The group last rebalanced'} because {facts.reason}."
    left = duration(facts.phase_left_ms)
    match facts.phase:
        case "initial-delay":
            yield (
                f"This is the first rebalance. It waits {left} more for other members to join "
                "(group.initial.rebalance.delay.ms); each member that joins may extend the wait."
            )
        case "join":
            yield f"All members must rejoin; members that have not rejoined in {left} are removed (rebalance timeout)."
        case "sync":
            yield (
                f"The leader, {facts.leader_id}, must send the assignment; members that have not "
                f"fetched it in {left} are removed."
            )
        case "store":
            yield "The assignment is being written to __consumer_offsets."
        case "assign":
            wait = f" in {left}" if facts.phase_left_ms >= 0 else " at the next heartbeat of a member"
            yield (
                f"A new assignment is due: the group's epoch is {facts.epoch}, the assignment's "
                f"{facts.assignment_epoch}. It is computed{wait}."
            )
        case "reconcile":
            yield f"Members are changing to the assignment of epoch {facts.assignment_epoch}."


def members(facts: GroupFacts) -> Iterator[str]:
    """Which members have a pending step, and how much time they have for it."""
    waiting = [member for member in facts.members if member.pending]
    if not waiting and facts.members:
        yield "No member has a pending step."
    for member in waiting[:NAMED_MAX]:
        yield _member(member)
    if len(waiting) > NAMED_MAX:
        yield f"{counted(len(waiting) - NAMED_MAX, 'more member')} have a pending step."


def _member(member: MemberFacts) -> str:
    who = f"Member {member.member_id}"
    about = [f"client {member.client_id}" if member.client_id else "", member.client_host]
    if any(about):
        who += f" ({' at '.join(part for part in about if part)})"
    text = f"{who} {PENDING.get(member.pending, member.pending)}"
    if member.to_revoke:
        text += f": {_partitions(member.to_revoke)}"
    elif member.awaited:
        text += ": " + "; ".join(
            f"{_partitions([h for h in member.awaited if h.member_id == owner])} of {owner}"
            for owner in dict.fromkeys(holding.member_id for holding in member.awaited)
        )
    clocks = []
    if member.rebalance_left_ms >= 0:
        clocks.append(f"{duration(member.rebalance_left_ms)} left to do so")
    if member.session_left_ms >= 0:
        left = duration(member.session_left_ms)
        known = member.pending != "come-back"
        clocks.append(f"without a heartbeat it is removed in {left}" if known else f"the id expires in {left}")
    return f"{text}{'; ' if clocks else ''}{'; '.join(clocks)}."


def _partitions(holdings: Sequence[HoldingFacts]) -> str:
    named = ", ".join(f"{holding.topic}-{holding.partition}" for holding in holdings[:NAMED_MAX])
    return named + (f" and {len(holdings) - NAMED_MAX} more" if len(holdings) > NAMED_MAX else "")


def offsets(facts: GroupFacts) -> Iterator[str]:
    """Whether the committed offsets expire, and when."""
    if facts.group_type == "share":
        return
    if facts.pending_offset_count:
        yield f"{counted(facts.pending_offset_count, 'offset')} pending until a transaction ends."
    if not facts.offset_count:
        yield "The group has no committed offsets."
        return
    total = counted(facts.offset_count, "committed offset")
    if facts.first_offset_expiry_ms < 0:
        yield f"The {total} {'does' if facts.offset_count == 1 else 'do'} not expire while the group is used as now."
        return
    left = facts.first_offset_expiry_ms - facts.now_ms
    when = f"in {duration(left)}, at {moment(facts.first_offset_expiry_ms)}" if left > 0 else "with the next check"
    expiring = facts.offset_count - facts.kept_offset_count
    check = f"; the next check is in {duration(facts.next_offset_check_left_ms)}"
    yield (
        f"The group has {total}, of which {expiring} will expire; the first expires {when} (offsets.retention.minutes "
        f"is {duration(facts.offsets_retention_ms)}{check if facts.next_offset_check_left_ms >= 0 else ''})."
    )
