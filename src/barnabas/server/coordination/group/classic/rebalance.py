"""Machine: when a classic group rebalances, and how a rebalance ends.

Every change of the membership (a join, a leave, an expired session, a changed assignor) calls `rebalance_or_complete`.
The functions change the group in place, and add responses, timers and records to the operation.

Timers of a group:  ("heartbeat", group, member)  the session of a member, or of a member id that has not joined yet
                    ("join", group)               the end of the join phase
                    ("sync", group)               the time by which all members must have sent SyncGroup

The rules are those of the classic part of Kafka's GroupMetadataManager.
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
    """Restart the session timeout of a member that has sent a request."""
    op.schedule(
        ("heartbeat", group.group_id, member.member_id), member.session_timeout_ms if timeout_ms is None else timeout_ms
    )


def complete_join_future(
    op: WriteOperation, group: ClassicGroup, member: ClassicGroupMember, response: JoinGroupResponse
) -> bool:
    """Complete the pending JoinGroup request of a member. Returns whether there was one."""
    future = group.set_join_future(member, None)
    if future is None:
        return False
    op.complete(future, response)
    return True


def complete_sync_future(op: WriteOperation, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
    """Complete the pending SyncGroup request of a member. Returns whether there was one."""
    future: ResponseFuture | None = member.awaiting_sync
    if future is None:
        return False
    member.awaiting_sync = None
    op.complete(future, response)
    return True


def joined_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The JoinGroup response for the new generation. The leader also gets the list of members."""
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
    """Start a rebalance, or complete the join phase of the current rebalance if all members have joined."""
    if group.can_rebalance:
        prepare_rebalance(config, op, group, reason)
    else:
        maybe_complete_join(op, group)


def prepare_rebalance(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, reason: str) -> None:
    """Start a rebalance. Members learn from their next heartbeat that they must rejoin."""
    if group.state is COMPLETING:
        for member in group.members.values():
            member.assignment = b""
        propagate_assignment(op, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    op.cancel(("sync", group.group_id))
    group.reason = reason
    initial = group.state is EMPTY
    group.transition(PREPARING, op.now_ms)
    if initial:  # wait for the other members of an application that is starting (KIP-134)
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
    """Complete the join phase if all members have joined. The initial rebalance of a group always waits for its
    delay."""
    if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined:
        complete_join(op, group)


def on_join_timer(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup) -> None:
    """Complete the join phase. The initial rebalance is extended if members have joined since the last delay."""
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
    """Complete the join phase: remove the dynamic members that have not rejoined, start the next generation, and
    complete the pending JoinGroup requests."""
    op.cancel(("join", group.group_id))
    group.initial_remaining_ms = None
    for member in [m for m in group.members.values() if m.awaiting_join is None and m.instance_id is None]:
        group.remove(member.member_id)
        op.cancel(("heartbeat", group.group_id, member.member_id))
    if group.state is DEAD:
        return
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none has rejoined. They may be restarting, so wait once more.
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
    """Complete all pending SyncGroup requests, with the assignment or with the error."""
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
    """A session has expired: of a member without heartbeats, or of a member id that has not joined."""
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
    """Remove the member and rebalance the group."""
    drop_member(op, group, member)
    if group.state in (STABLE, COMPLETING):
        rebalance_or_complete(config, op, group, reason)
    elif group.state is PREPARING and group.all_joined:
        complete_join(op, group)


def drop_member(op: WriteOperation, group: ClassicGroup, member: ClassicGroupMember) -> None:
    """Remove the member, and fail its pending requests with UNKNOWN_MEMBER_ID."""
    removed = ErrorCode.UNKNOWN_MEMBER_ID
    complete_join_future(op, group, member, JoinGroupResponse(error_code=removed))
    complete_sync_future(op, member, SyncGroupResponse(error_code=removed))
    group.remove(member.member_id)


def on_sync_timer(config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup) -> None:
    """Remove the members that joined the generation but have not sent SyncGroup in time."""
    if group.state not in (COMPLETING, STABLE) or not group.pending_sync:
        return
    missing = list(group.pending_sync)
    for member_id in missing:
        drop_member(op, group, group.members[member_id])
        op.cancel(("heartbeat", group.group_id, member_id))
    prepare_rebalance(config, op, group, f"{len(missing)} members did not fetch their assignment in time")
