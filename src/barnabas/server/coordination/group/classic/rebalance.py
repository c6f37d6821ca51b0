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
    ClassicGroupMember,
)
from barnabas.server.coordination.group.config import GroupCoordinatorConfig
from barnabas.server.coordination.operation import ResponseFuture, WriteOperation


def schedule_session_timeout(
    op: WriteOperation, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None
) -> None:
    """The member has been heard: it has its session time-out again."""
    op.schedule(
        ("heartbeat", group.group_id, member.member_id), member.session_timeout_ms if timeout_ms is None else timeout_ms
    )


def complete_join_future(
    op: WriteOperation, group: ClassicGroup, member: ClassicGroupMember, response: JoinGroupResponse
) -> bool:
    """Answer a member that waits for the end of the join phase. False: it does not wait."""
    future = group.set_join_future(member, None)
    if future is None:
        return False
    op.complete(future, response)
    return True


def complete_sync_future(op: WriteOperation, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
    """Answer a member that waits for the leader's assignment. False: it does not wait."""
    future: ResponseFuture | None = member.awaiting_sync
    if future is None:
        return False
    member.awaiting_sync = None
    op.complete(future, response)
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


def rebalance_or_complete(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, reason: str) -> None:
    """Begin a rebalance, or end the join phase of the one under way if that was all it waited for."""
    if group.can_rebalance:
        prepare_rebalance(config, op, group, reason)
    else:
        maybe_complete_join(op, group)


def prepare_rebalance(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, reason: str) -> None:
    """Ask all members to rejoin (their heartbeats will tell them)."""
    if group.state is COMPLETING:
        for member in group.members.values():
            member.assignment = b""
        propagate_assignment(op, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    op.cancel(("sync", group.group_id))
    group.reason = reason
    initial = group.state is EMPTY
    group.transition(PREPARING, op.now_ms)
    if initial:  # give a starting application time to bring all of its members (KIP-134)
        delay = config.group_initial_rebalance_delay_ms
        group.initial_delay_ms = delay
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
        op.schedule(("join", group.group_id), delay)
        return
    group.initial_remaining_ms = None
    if group.all_joined:
        complete_join(op, group)
    else:
        op.schedule(("join", group.group_id), group.rebalance_timeout_ms)


def maybe_complete_join(op: WriteOperation, group: ClassicGroup) -> None:
    """End the join phase when all have joined; the first rebalance of a group waits for its delay in any case."""
    if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined:
        complete_join(op, group)


def on_join_timer(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup) -> None:
    """Time to end the join phase, unless this is the first one and members are still arriving."""
    if group.state is not PREPARING:
        return
    remaining = group.initial_remaining_ms
    if remaining and group.new_member_added:
        group.new_member_added = False
        delay = min(config.group_initial_rebalance_delay_ms, remaining)
        group.initial_remaining_ms = max(remaining - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay
        op.schedule(("join", group.group_id), delay)
    else:
        complete_join(op, group)


def complete_join(op: WriteOperation, group: ClassicGroup) -> None:
    """The join phase is over: drop who did not come, begin the next generation, answer who did."""
    op.cancel(("join", group.group_id))
    group.initial_remaining_ms = None
    for member in [m for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]:
        group.remove(member.member_id)
        op.cancel(("heartbeat", group.group_id, member.member_id))
    if group.state is DEAD:
        return
    if not group.elect_joined_leader() and group.members:
        # Only static members are left, and none of them has come: they may be restarting, so wait once more.
        op.schedule(("join", group.group_id), group.rebalance_timeout_ms)
        return
    group.next_generation(op.now_ms)
    if group.state is EMPTY:
        op.write(group.record({}))
        op.replay_records = False
        return
    for member in group.members.values():
        complete_join_future(op, group, member, joined_response(group, member.member_id))
        schedule_session_timeout(op, group, member)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    op.schedule(("sync", group.group_id), group.rebalance_timeout_ms)


def propagate_assignment(op: WriteOperation, group: ClassicGroup, error: ErrorCode) -> None:
    """Answer everyone who waits in SyncGroup, with the assignment or with the error."""
    ok = error is ErrorCode.NONE
    for member in group.members.values():
        response = SyncGroupResponse(
            error_code=error,
            protocol_type=group.protocol_type if ok else None,
            protocol_name=group.protocol_name if ok else None,
            assignment=member.assignment,
        )
        if complete_sync_future(op, member, response):
            schedule_session_timeout(op, group, member)


def on_heartbeat_timer(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, member_id: str) -> None:
    """A member has been silent for its session time-out, or has not come back with the id it was given."""
    if member_id in group.pending_join:
        group.remove(member_id)
        if group.state is PREPARING and group.all_joined:
            complete_join(op, group)
        return
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat:
        return
    remove_member(config, op, group, member, f"member {member_id} failed to heartbeat in time")


def remove_member(
    config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, member: ClassicGroupMember, reason: str
) -> None:
    """The member is gone; the others share its partitions."""
    drop_member(op, group, member)
    if group.state in (STABLE, COMPLETING):
        rebalance_or_complete(config, op, group, reason)
    elif group.state is PREPARING and group.all_joined:
        complete_join(op, group)


def drop_member(op: WriteOperation, group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Take the member out, and tell it so if it waits."""
    gone = ErrorCode.UNKNOWN_MEMBER_ID
    complete_join_future(op, group, member, JoinGroupResponse(error_code=gone))
    complete_sync_future(op, member, SyncGroupResponse(error_code=gone))
    group.remove(member.member_id)


def on_sync_timer(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup) -> None:
    """Members that joined the generation and never fetched their assignment are taken for dead."""
    if group.state not in (COMPLETING, STABLE) or not group.pending_sync:
        return
    missing = list(group.pending_sync)
    for member_id in missing:
        drop_member(op, group, group.members[member_id])
        op.cancel(("heartbeat", group.group_id, member_id))
    prepare_rebalance(config, op, group, f"{len(missing)} members did not fetch their assignment in time")
