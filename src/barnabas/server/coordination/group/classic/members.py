"""Machine: SyncGroup, Heartbeat and LeaveGroup for classic groups."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.group.classic import rebalance
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
from barnabas.server.coordination.operation import DEFERRED, Deferred, WriteOperation


def sync(
    config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, request: SyncGroupRequest
) -> SyncGroupResponse | Deferred:
    """Handle SyncGroup: a member fetches its assignment; the leader sends the assignments of all members."""
    if group.state is DEAD:
        return SyncGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    if request.generation_id != group.generation_id:
        return SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is EMPTY:
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is PREPARING:
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        op.cancel(("sync", group.group_id))
    if group.state is STABLE:
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )
    stale, member.awaiting_sync = member.awaiting_sync, op.response_future
    if stale is not None:
        op.complete(stale, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    if group.is_leader(member.member_id):
        sent = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        _store_assignment(config, op, group, {m: sent.get(m, b"") for m in group.members})
    return DEFERRED


def _store_assignment(
    config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, assignments: dict[str, bytes]
) -> None:
    """Append the assignment. The group becomes stable, and the members get their assignments, when it is committed."""
    generation_id = group.generation_id

    def stored(op: WriteOperation, code: ErrorCode) -> None:
        if group.state is not COMPLETING or group.generation_id != generation_id:
            return  # the next rebalance has started, and the pending requests have been answered
        if code is ErrorCode.NONE:
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            rebalance.propagate_assignment(op, group, ErrorCode.NONE)
            group.transition(STABLE, op.now_ms)
            return
        for member in group.members.values():
            member.assignment = b""
        rebalance.propagate_assignment(op, group, error_for_client(code))
        rebalance.rebalance_or_complete(config, op, group, f"the assignment could not be stored ({code.name})")

    op.write(group.record(assignments))
    op.replay_records = False
    op.append_callback = stored


def _differs(requested: str | None, present: str | None) -> bool:
    return requested is not None and present is not None and requested != present


def heartbeat(op: WriteOperation, group: ClassicGroup, request: HeartbeatRequest) -> HeartbeatResponse:
    """Handle Heartbeat. Raises KafkaError if the member does not belong to the current generation."""
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    rebalance.schedule_session_timeout(op, group, member)
    if group.state is PREPARING:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def leave(
    config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Handle LeaveGroup, from the members or from an administrator. A static member may be identified by its instance
    id without a member id."""
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    results: list[MemberResponse] = []
    left: list[str] = []
    for identity in request.members:
        result = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        results.append(result)
        try:
            _leave_one(op, group, identity)
            left.append(identity.member_id or identity.group_instance_id or "")
        except KafkaError as error:
            result.error_code = error.code
    if left:
        reason = f"{', '.join(left)} left the group"
        if group.state in (STABLE, COMPLETING):
            rebalance.rebalance_or_complete(config, op, group, reason)
        elif group.state is PREPARING:
            rebalance.maybe_complete_join(op, group)
    return LeaveGroupResponse(members=results)


def _leave_one(op: WriteOperation, group: ClassicGroup, identity: MemberIdentity) -> None:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id:
        owner = group.static_members.get(instance_id) if instance_id is not None else None
        if owner is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member: ClassicGroupMember = group.members[owner]
    elif member_id in group.pending_join:
        group.remove(member_id)
        op.cancel(("heartbeat", group.group_id, member_id))
        return
    else:
        member = group.check_member(member_id, instance_id)
    op.cancel(("heartbeat", group.group_id, member.member_id))
    rebalance.drop_member(op, group, member)
