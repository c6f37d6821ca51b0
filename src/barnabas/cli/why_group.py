"""Codec: the facts about a group -> sentences: why it rebalances, whom it waits for, what becomes of its offsets.

The one place where these facts find their words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.cli.words import ago, counted, duration, moment

if TYPE_CHECKING:
    from barnabas.client.admin.upkeep import GroupFacts, HoldingFacts, MemberFacts

NAMED_MAX: Final = 5
"""So many members or partitions are named; more are counted."""

PENDING: Final = {
    "come-back": "was given a member id and has not come back with it",
    "rejoin": "has not rejoined",
    "assign": "leads the group and has not sent the assignment",
    "sync": "has not fetched its assignment",
    "revoke": "has not given up what it must",
    "release": "waits for what others must give up first",
    "heartbeat": "will hear of its new assignment at its next heartbeat",
    "return": "is a static member that is away; its partitions wait for it",
}


def answers(facts: GroupFacts) -> dict[str, list[str]]:
    """By question: `state`, `members`, `offsets`."""
    return {"state": list(state(facts)), "members": list(members(facts)), "offsets": list(offsets(facts))}


def state(facts: GroupFacts) -> Iterator[str]:
    """What the group is doing, since when, and what began it."""
    since = f" since {moment(facts.state_since_ms)}, {ago(facts.state_since_ms, facts.now_ms)}"
    kind = f"{facts.group_type} group"
    epoch = "generation" if facts.group_type == "classic" else "epoch"
    present = sum(member.pending != "come-back" for member in facts.members)
    yield (
        f"{facts.group_id} is a {kind} with {counted(present, 'member')}, "
        f"{epoch} {facts.epoch}, in state {facts.state}{since if facts.state_since_ms >= 0 else ''}."
    )
    if facts.reason:
        yield f"{'It rebalances' if facts.phase else 'It last rebalanced'} because {facts.reason}."
    left = duration(facts.phase_left_ms)
    match facts.phase:
        case "initial-delay":
            yield (
                f"This is its first rebalance, which waits {left} more for other members to join "
                "(group.initial.rebalance.delay.ms); each one that does may put the end off."
            )
        case "join":
            yield f"All members must rejoin; who has not in {left} is dropped (the rebalance time-out)."
        case "sync":
            yield f"The leader, {facts.leader_id}, must send the assignment; who has not fetched it in {left} is out."
        case "store":
            yield "The assignment is being written to __consumer_offsets."
        case "assign":
            wait = f" in {left}" if facts.phase_left_ms >= 0 else " at the next heartbeat of a member"
            yield (
                f"A new assignment is due: the group's epoch is {facts.epoch}, the assignment's "
                f"{facts.assignment_epoch}. It is computed{wait}."
            )
        case "reconcile":
            yield f"Members are on their way to the assignment of epoch {facts.assignment_epoch}."


def members(facts: GroupFacts) -> Iterator[str]:
    """Who has still something to do, and how much time it has."""
    waiting = [member for member in facts.members if member.pending]
    if not waiting and facts.members:
        yield "No member has anything left to do."
    for member in waiting[:NAMED_MAX]:
        yield _member(member)
    if len(waiting) > NAMED_MAX:
        yield f"{counted(len(waiting) - NAMED_MAX, 'more member')} have something left to do."


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
        clocks.append(f"without a heartbeat it is dropped in {left}" if known else f"the id is forgotten in {left}")
    return f"{text}{'; ' if clocks else ''}{'; '.join(clocks)}."


def _partitions(holdings: Sequence[HoldingFacts]) -> str:
    named = ", ".join(f"{holding.topic}-{holding.partition}" for holding in holdings[:NAMED_MAX])
    return named + (f" and {len(holdings) - NAMED_MAX} more" if len(holdings) > NAMED_MAX else "")


def offsets(facts: GroupFacts) -> Iterator[str]:
    """Whether its offsets will be forgotten, and when."""
    if facts.group_type == "share":
        return
    if facts.pending_offset_count:
        yield f"{counted(facts.pending_offset_count, 'offset')} still to be decided by the end of a transaction."
    if not facts.offset_count:
        yield "It has committed no offsets."
        return
    total = counted(facts.offset_count, "committed offset")
    if facts.first_offset_expiry_ms < 0:
        yield f"Its {total} {'is' if facts.offset_count == 1 else 'are'} kept as long as it is used like this."
        return
    left = facts.first_offset_expiry_ms - facts.now_ms
    when = f"in {duration(left)}, at {moment(facts.first_offset_expiry_ms)}" if left > 0 else "with the next check"
    expiring = facts.offset_count - facts.kept_offset_count
    check = f"; the next check is in {duration(facts.next_offset_check_left_ms)}"
    yield (
        f"It has {total}, of which nobody uses {expiring}; the first is forgotten {when} (offsets.retention.minutes is "
        f"{duration(facts.offsets_retention_ms)}{check if facts.next_offset_check_left_ms >= 0 else ''})."
    )
