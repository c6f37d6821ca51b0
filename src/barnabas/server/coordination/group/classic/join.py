"""Machine: JoinGroup for classic groups.

Since version 4 a dynamic member sends JoinGroup twice. The first response has a member id (MEMBER_ID_REQUIRED,
KIP-394), so that a client that fails while its join is pending leaves no unknown member behind. A static member
(group.instance.id, KIP-345) that restarts replaces its previous incarnation, without a rebalance if the group is stable
and the selected assignor does not change.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.wire.messages.sync_group import SyncGroupResponse
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
from barnabas.server.coordination.ports import GroupRequestContext

KNOWN_MEMBER_ID_FROM = 4
SKIP_ASSIGNMENT_FROM = 9

Answer = JoinGroupResponse | Deferred


def error_response(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def join(
    config: GroupCoordinatorConfig,
    op: WriteOperation,
    group: ClassicGroup,
    ctx: GroupRequestContext,
    request: JoinGroupRequest,
) -> Answer:
    """Handle JoinGroup: the member joins the next generation of the group."""
    member_id = request.member_id
    if not _accepts_joining_member(config, group, member_id):
        group.remove(member_id)
        return error_response(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if group.state is DEAD:
        return error_response(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        return error_response(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if not member_id:
        return _join_new(config, op, group, ctx, request)
    if member_id in group.pending_join:
        if request.group_instance_id is not None:
            return error_response(ErrorCode.UNKNOWN_MEMBER_ID, member_id)  # ids are reserved for dynamic members only
        return _add(config, op, group, ctx, request, member_id)
    return _rejoin(config, op, group, request)


def _accepts_joining_member(config: GroupCoordinatorConfig, group: ClassicGroup, member_id: str) -> bool:
    """Whether `group.max.size` permits the member to join (Kafka's acceptJoiningMember). Member ids that have not
    joined do not count, and members that rejoin are always accepted."""
    if group.state in (EMPTY, DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING:  # only rejoined members count, because the others may have failed
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_join_count < config.group_max_size
    return member is not None or len(group.members) < config.group_max_size


def _join_new(
    config: GroupCoordinatorConfig,
    op: WriteOperation,
    group: ClassicGroup,
    ctx: GroupRequestContext,
    request: JoinGroupRequest,
) -> Answer:
    instance_id = request.group_instance_id
    member_id = group.new_member_id(ctx.client_id or "", instance_id, op.rng)
    if instance_id is not None:
        if instance_id in group.static_members:
            return _replace_static_member(config, op, group, ctx, request, group.static_members[instance_id], member_id)
        return _add(config, op, group, ctx, request, member_id)
    if ctx.api_version >= KNOWN_MEMBER_ID_FROM:
        group.pending_join[member_id] = None
        op.schedule(("heartbeat", group.group_id, member_id), request.session_timeout_ms)
        return error_response(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    return _add(config, op, group, ctx, request, member_id)


def _add(
    config: GroupCoordinatorConfig,
    op: WriteOperation,
    group: ClassicGroup,
    ctx: GroupRequestContext,
    request: JoinGroupRequest,
    member_id: str,
) -> Answer:
    member = ClassicGroupMember(
        member_id,
        request.group_instance_id,
        ctx.client_id or "",
        ctx.client_host,
        rebalance_timeout_of(request),
        request.session_timeout_ms,
        request.protocol_type,
        protocols_of(request),
        awaiting_join=op.response_future,
        is_new=True,
    )
    if group.state is PREPARING and group.previous_state is EMPTY:
        group.new_member_added = True  # extends the initial rebalance delay
    group.add(member)
    rebalance.schedule_session_timeout(op, group, member, config.new_member_join_timeout_ms)
    rebalance.rebalance_or_complete(config, op, group, f"member {member_id} joined{_client_reason(request)}")
    return DEFERRED


def _rejoin(
    config: GroupCoordinatorConfig, op: WriteOperation, group: ClassicGroup, request: JoinGroupRequest
) -> Answer:
    """A known member sends JoinGroup: for a rebalance, with changed metadata, or because the last response was lost."""
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error_response(error.code, request.member_id)
    if group.state is EMPTY:
        return error_response(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    protocols = protocols_of(request)
    changed = member.protocols != protocols
    if (group.state is COMPLETING and not changed) or (group.state is STABLE and not changed and not group.is_leader(
        member.member_id
    )):  # fmt: skip
        return rebalance.joined_response(group, member.member_id)
    # In a stable group the leader starts a rebalance by rejoining, when its topic metadata has changed.
    what = "changed its protocols" if changed else "rejoined"
    _update(op, group, member, request, protocols if changed else None)
    rebalance.rebalance_or_complete(config, op, group, f"member {member.member_id} {what}{_client_reason(request)}")
    return DEFERRED


def _update(
    op: WriteOperation,
    group: ClassicGroup,
    member: ClassicGroupMember,
    request: JoinGroupRequest,
    protocols: list[tuple[str, bytes]] | None,
) -> None:
    """Store the timeouts and the new protocols (None if unchanged) of a member that rejoins."""
    if protocols is not None:
        group.update(member, protocols)
    member.rebalance_timeout_ms = rebalance_timeout_of(request)
    member.session_timeout_ms = request.session_timeout_ms
    stale = group.set_join_future(member, op.response_future)
    if stale is not None:  # the client has abandoned the earlier request
        op.complete(stale, error_response(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))


def _replace_static_member(
    config: GroupCoordinatorConfig,
    op: WriteOperation,
    group: ClassicGroup,
    ctx: GroupRequestContext,
    request: JoinGroupRequest,
    old_id: str,
    new_id: str,
) -> Answer:
    """A static member has restarted: replace its previous incarnation by the new member id, and fence the old id."""
    instance_id = request.group_instance_id
    assert instance_id is not None
    leader_before = group.leader_id
    old, member = group.replace_static_member(instance_id, old_id, new_id)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    rebalance.complete_join_future(
        op, group, old, JoinGroupResponse(error_code=fenced, member_id=old_id, protocol_name=None)
    )
    rebalance.complete_sync_future(op, old, SyncGroupResponse(error_code=fenced))
    op.cancel(("heartbeat", group.group_id, old_id))
    rebalance.schedule_session_timeout(op, group, member)
    protocols, timeouts = member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms)
    _update(op, group, member, request, protocols_of(request))
    if group.state is PREPARING:
        rebalance.maybe_complete_join(op, group)
    elif group.state is COMPLETING or group.protocol_name != group.select_protocol():
        reason = f"static member {instance_id} restarted as {new_id}{_client_reason(request)}"
        rebalance.rebalance_or_complete(config, op, group, reason)
    else:
        _persist_static_replacement(op, group, ctx, member, old_id, protocols, timeouts, leader_before)
    return DEFERRED


def _persist_static_replacement(
    op: WriteOperation,
    group: ClassicGroup,
    ctx: GroupRequestContext,
    member: ClassicGroupMember,
    old_id: str,
    protocols: list[tuple[str, bytes]],
    timeouts: tuple[int, int],
    leader_before: str | None,
) -> None:
    """Respond, without a rebalance, when the record with the new member id is committed. If writing the record fails,
    restore the previous member: its id `old_id`, its `protocols`, and its rebalance and session `timeouts`."""
    instance_id = member.instance_id
    assert instance_id is not None
    new_id = member.member_id

    def stored(op: WriteOperation, code: ErrorCode) -> None:
        if group.members.get(new_id) is not member:
            return  # this incarnation has been replaced, too
        if code is not ErrorCode.NONE:
            response = error_response(error_for_client(code))
            response.generation_id = group.generation_id
            response.leader = leader_before or ""
            rebalance.complete_join_future(op, group, member, response)
            group.update(member, protocols)
            member.rebalance_timeout_ms, member.session_timeout_ms = timeouts
            op.cancel(("heartbeat", group.group_id, new_id))
            _, restored = group.replace_static_member(instance_id, new_id, old_id)
            rebalance.schedule_session_timeout(op, group, restored)
            return
        response = rebalance.joined_response(group, new_id)
        if ctx.api_version >= SKIP_ASSIGNMENT_FROM:
            # KIP-814: the leader gets the list of members, but must not compute an assignment.
            response.skip_assignment = group.is_leader(new_id)
        else:
            # A client before KIP-814 would compute an assignment if the response named the client as the leader.
            # With the previous member id as the leader, the client acts as a follower.
            response.leader = leader_before or ""
            response.members = []
        rebalance.complete_join_future(op, group, member, response)

    op.write(group.record())
    op.replay_records = False
    op.append_callback = stored


def protocols_of(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """The rebalance timeout of the request. Version 0 has none; the session timeout is used instead."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _client_reason(request: JoinGroupRequest) -> str:
    return f"; client reason: {request.reason}" if request.reason else ""
