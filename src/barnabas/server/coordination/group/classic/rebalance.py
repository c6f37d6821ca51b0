"""Machine: when a classic group rebalances, and how a rebalance ends.

Everything that changes the membership (joining, leaving, silence, a changed assignor) ends in `rebalance_or_complete`.
The functions change the group in place, and put answers, timers and records on the turn.

Timers of a group:  ("heartbeat", group, member)  the member's session, or its place while it waits to rejoin
                    ("join", group)               everyone has had time to join
                    ("sync", group)               everyone has had time to fetch the assignment

The rules are Kafka's GroupMetadataManager's (classic part).
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.wire.messages.sync_group import SyncGroupResponse
from barnabas.server.coordination.group.classic.group import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    ClassicMember,
)
from barnabas.server.coordination.group.config import GroupCoordinatorConfig
from barnabas.server.coordination.turn import Ticket, Turn


def arm_session(turn: Turn, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
    """The member has been heard: it has its session time-out again."""
    turn.arm(
        ("heartbeat", group.group_id, member.member_id), member.session_timeout_ms if timeout_ms is None else timeout_ms
    )


def answer_join(turn: Turn, group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse) -> bool:
    """Answer a member that waits for the end of the join phase. False: it does not wait."""
    ticket = group.park_join(member, None)
    if ticket is None:
        return False
    turn.answer(ticket, response)
    return True


def answer_sync(turn: Turn, member: ClassicMember, response: SyncGroupResponse) -> bool:
    """Answer a member that waits for the leader's assignment. False: it does not wait."""
    ticket: Ticket | None = member.awaiting_sync
    if ticket is None:
        return False
    member.awaiting_sync = None
    turn.answer(ticket, response)
    return True


def joined_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """Welcome to the generation; the leader is also told who else is in it."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=member_list(group) if group.is_leader(member_id) else [],
    )


def member_list(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(group.protocol_name)
        )
        for m in group.members.values()
    ]


def rebalance_or_complete(config: GroupCoordinatorConfig, turn: Turn, group: ClassicGroup, reason: str) -> None:
    """Begin a rebalance, or end the join phase of the one under way if that was all it waited for."""
    if group.can_rebalance:
        prepare_rebalance(config, turn, group, reason)
    else:
        maybe_complete_join(turn, group)


def prepare_rebalance(config: GroupCoordinatorConfig, turn: Turn, group: ClassicGroup, reason: str) -> None:
    """Ask all members to rejoin (their heartbeats will tell them)."""
    if group.state is COMPLETING:
        for member in group.members.values():
            member.assignment = b""
        propagate_assignment(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    turn.disarm(("sync", group.group_id))
    group.reason = reason
    initial = group.state is EMPTY
    group.transition(PREPARING, turn.now_ms)
    if initial:  # give a starting application time to bring all of its members (KIP-134)
        delay = config.group_initial_rebalance_delay_ms
        group.initial_delay_ms = delay
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
        turn.arm(("join", group.group_id), delay)
        return
    group.initial_remaining_ms = None
    if group.all_joined:
        complete_join(turn, group)
    else:
        turn.arm(("join", group.group_id), group.rebalance_timeout_ms)


def maybe_complete_join(turn: Turn, group: ClassicGroup) -> None:
    """End the join phase when all have joined; the first rebalance of a group waits for its delay in any case."""
    if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined:
        complete_join(turn, group)


def on_join_timer(config: GroupCoordinatorConfig, turn: Turn, group: ClassicGroup) -> None:
    """Time to end the join phase, unless this is the first one and members are still arriving."""
    if group.state is not PREPARING:
        return
    remaining = group.initial_remaining_ms
    if remaining and group.new_member_added:
        group.new_member_added = False
        delay = min(config.group_initial_rebalance_delay_ms, remaining)
        group.initial_remaining_ms = max(remaining - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay
        turn.arm(("join", group.group_id), delay)
    else:
        complete_join(turn, group)


def complete_join(turn: Turn, group: ClassicGroup) -> None:
    """The join phase is over: drop who did not come, begin the next generation, answer who did."""
    turn.disarm(("join", group.group_id))
    group.initial_remaining_ms = None
    for member in [m for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]:
        group.remove(member.member_id)
        turn.disarm(("heartbeat", group.group_id, member.member_id))
    if group.state is DEAD:
        return
    if not group.elect_joined_leader() and group.members:
        # Only static members are left, and none of them has come: they may be restarting, so wait once more.
        turn.arm(("join", group.group_id), group.rebalance_timeout_ms)
        return
    group.next_generation(turn.now_ms)
    if group.state is EMPTY:
        turn.write(group.record({}))
        turn.replay = False
        return
    for member in group.members.values():
        answer_join(turn, group, member, joined_response(group, member.member_id))
        arm_session(turn, group, member)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    turn.arm(("sync", group.group_id), group.rebalance_timeout_ms)


def propagate_assignment(turn: Turn, group: ClassicGroup, error: ErrorCode) -> None:
    """Answer everyone who waits in SyncGroup, with the assignment or with the error."""
    ok = error is ErrorCode.NONE
    for member in group.members.values():
        response = SyncGroupResponse(
            error_code=error,
            protocol_type=group.protocol_type if ok else None,
            protocol_name=group.protocol_name if ok else None,
            assignment=member.assignment,
        )
        if answer_sync(turn, member, response):
            arm_session(turn, group, member)


def on_heartbeat_timer(config: GroupCoordinatorConfig, turn: Turn, group: ClassicGroup, member_id: str) -> None:
    """A member has been silent for its session time-out, or has not come back with the id it was given."""
    if member_id in group.pending_join:
        group.remove(member_id)
        if group.state is PREPARING and group.all_joined:
            complete_join(turn, group)
        return
    member = group.members.get(member_id)
    if member is None or member.is_excused:
        return
    remove_member(config, turn, group, member, f"member {member_id} failed to heartbeat in time")


def remove_member(
    config: GroupCoordinatorConfig, turn: Turn, group: ClassicGroup, member: ClassicMember, reason: str
) -> None:
    """The member is gone; the others share its partitions."""
    drop_member(turn, group, member)
    if group.state in (STABLE, COMPLETING):
        rebalance_or_complete(config, turn, group, reason)
    elif group.state is PREPARING and group.all_joined:
        complete_join(turn, group)


def drop_member(turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
    """Take the member out, and tell it so if it waits."""
    gone = ErrorCode.UNKNOWN_MEMBER_ID
    answer_join(turn, group, member, JoinGroupResponse(error_code=gone))
    answer_sync(turn, member, SyncGroupResponse(error_code=gone))
    group.remove(member.member_id)


def on_sync_timer(config: GroupCoordinatorConfig, turn: Turn, group: ClassicGroup) -> None:
    """Members that joined the generation and never fetched their assignment are taken for dead."""
    if group.state not in (COMPLETING, STABLE) or not group.pending_sync:
        return
    missing = list(group.pending_sync)
    for member_id in missing:
        drop_member(turn, group, group.members[member_id])
        turn.disarm(("heartbeat", group.group_id, member_id))
    prepare_rebalance(config, turn, group, f"{len(missing)} members did not fetch their assignment in time")
