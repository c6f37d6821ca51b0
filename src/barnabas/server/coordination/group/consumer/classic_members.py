"""Machine: members with the classic protocol in a consumer group (KIP-848, migration).

JoinGroup updates the member's subscription and moves the member one step towards its target assignment. SyncGroup
returns the member's partitions. Heartbeat returns REBALANCE_IN_PROGRESS if the member must rejoin for its next step.
The member epoch is used as the generation id.
"""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import uuid_to_text
from barnabas.core.rng import random_uuid
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.coordination.group import migration
from barnabas.server.coordination.group.classic import consumer_protocol
from barnabas.server.coordination.group.classic.join import (
    KNOWN_MEMBER_ID_FROM,
    error_response,
    protocols_of,
    rebalance_timeout_of,
)
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.consumer.manager import LEFT, ConsumerGroupManager, check_static
from barnabas.server.coordination.group.consumer.member import (
    JOINING_EPOCH,
    ClassicProtocolMetadata,
    ConsumerGroupMember,
    ConsumerMemberState,
    topic_names_of,
)
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext


def join(
    manager: ConsumerGroupManager,
    op: WriteOperation,
    group: ConsumerGroup,
    ctx: GroupRequestContext,
    request: JoinGroupRequest,
) -> JoinGroupResponse:
    """Handle JoinGroup. Raises KafkaError."""
    member_id = request.member_id or uuid_to_text(random_uuid(op.rng))
    instance_id = request.group_instance_id
    manager.check_group_size(group, member_id)
    _check_protocols(group, request)
    if not request.member_id and instance_id is None and ctx.api_version >= KNOWN_MEMBER_ID_FROM:
        return error_response(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    try:
        subscription = consumer_protocol.parse_subscription(request.protocols[0].metadata)
    except WireError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    member = _subscribe(manager, op, group, member_id, instance_id, known=bool(request.member_id))
    updated = replace(
        member,
        instance_id=instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        topic_names=topic_names_of(subscription.topics),
        client_id=ctx.client_id or "",
        client_host=ctx.client_host,
        classic=ClassicProtocolMetadata(request.session_timeout_ms, tuple(protocols_of(request))),
    )
    owned = migration.by_id(manager.catalog, {entry.topic: entry.partitions for entry in subscription.owned_partitions})
    now = manager.update_member(op, group, updated, owned)
    op.cancel(("consumer-join", group.group_id, member_id))
    if instance_id is not None and migration.may_downgrade(manager, group, member_id, replaced=True):
        migration.downgrade(manager, op, group, None)
    else:
        _schedule_session_timeout(op, group, now)
        op.schedule(("consumer-sync", group.group_id, member_id), now.rebalance_timeout_ms, retry=True)
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=now.member_epoch,
        protocol_type=consumer_protocol.PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        leader="",
    )


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """Check that all classic members have an assignor in common, which a downgrade needs. Raises KafkaError."""
    names = {protocol.name for protocol in request.protocols}
    present = [m.classic for m in group.members.values() if m.classic is not None and m.member_id != request.member_id]
    shared = names.intersection(*({name for name, _ in classic.protocols} for classic in present))
    if request.protocol_type != consumer_protocol.PROTOCOL_TYPE or not shared:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscribe(
    manager: ConsumerGroupManager,
    op: WriteOperation,
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    *,
    known: bool,
) -> ConsumerGroupMember:
    if instance_id is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id)
    owner = group.static_member(instance_id)
    if known:
        return check_static(group, owner, member_id, instance_id)
    if owner is None:
        return manager.subscribe(op, group, member_id, JOINING_EPOCH, instance_id, None)
    return manager.replace_member(op, group, owner, member_id)


def sync(
    manager: ConsumerGroupManager, op: WriteOperation, group: ConsumerGroup, request: SyncGroupRequest
) -> SyncGroupResponse:
    """Handle SyncGroup. Raises KafkaError."""
    member, classic = _find(group, request.member_id, request.group_instance_id)
    if request.generation_id != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    name, subscription = classic.protocols[0]
    if request.protocol_type not in (None, consumer_protocol.PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch.value > member.member_epoch and member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
        _schedule_join_timeout(op, group, member)
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    op.cancel(("consumer-sync", group.group_id, member.member_id))
    _schedule_session_timeout(op, group, member)
    op.wait_for_pending = True
    assigned = migration.by_name(manager.catalog, member.assigned)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=consumer_protocol.build_assignment(assigned, consumer_protocol.version_of(subscription)),
    )


def heartbeat(op: WriteOperation, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
    """Handle Heartbeat. Raises KafkaError."""
    member, _ = _find(group, request.member_id, request.group_instance_id)
    if request.generation_id != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    _schedule_session_timeout(op, group, member)
    behind = (
        member.member_epoch < group.epoch.value
        or member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
        or (member.state is ConsumerMemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member))
    )
    if behind:
        _schedule_join_timeout(op, group, member)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def leave(
    manager: ConsumerGroupManager, op: WriteOperation, group: ConsumerGroup, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    results = []
    for identity in request.members:
        result = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        results.append(result)
        try:
            manager.remove(op, group, _find_leaving(group, identity).member_id, LEFT)
        except KafkaError as error:
            result.error_code = error.code
    return LeaveGroupResponse(members=results)


def _find_leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    if identity.group_instance_id is not None and not identity.member_id:
        owner = group.static_member(identity.group_instance_id)
        if owner is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        identity = MemberIdentity(member_id=owner.member_id, group_instance_id=identity.group_instance_id)
    return _find(group, identity.member_id, identity.group_instance_id)[0]


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerGroupMember, ClassicProtocolMetadata]:
    """The classic member of a request. Raises KafkaError UNKNOWN_MEMBER_ID, also for a member with the consumer
    protocol, and FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.find_member(member_id)
    else:
        member = check_static(group, group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _schedule_session_timeout(op: WriteOperation, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    assert member.classic is not None
    op.schedule(("consumer-session", group.group_id, member.member_id), member.classic.session_timeout_ms, retry=True)


def _schedule_join_timeout(op: WriteOperation, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    key = ("consumer-join", group.group_id, member.member_id)
    op.schedule(key, member.rebalance_timeout_ms, retry=True, if_absent=True)
