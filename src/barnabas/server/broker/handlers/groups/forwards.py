"""Shell: the handlers of groups that pass the request on to the coordinator."""

from __future__ import annotations

from barnabas.protocol.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.broker.features import require_consumer_groups, require_share_groups
from barnabas.server.broker.handlers.groups.port import GroupsPort
from barnabas.server.broker.request_context import RequestContext


async def join_group(port: GroupsPort, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """JoinGroup (key 11), versions 0 to 9.

    - 0: joins a classic group
    - 1: the rebalance timeout, separate from the session timeout
    - 2: throttle time in the response
    - 3: as 2
    - 4: MEMBER_ID_REQUIRED gives a new member its id, with which it joins again (KIP-394)
    - 5: group instance id of a static member (KIP-345)
    - 6: flexible
    - 7: the protocol type in the response (KIP-559)
    - 8: the reason for joining (KIP-800)
    - 9: SkipAssignment, with which the leader sends no assignment (KIP-814)

    The response is delayed by the group coordinator until all members have joined or the rebalance timeout has passed.
    """
    return await port.groups.join_group(ctx, request)


async def sync_group(port: GroupsPort, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """SyncGroup (key 14), versions 0 to 5.

    - 0: distributes the assignment of a classic group
    - 1: throttle time in the response
    - 2: as 1
    - 3: group instance id of a static member (KIP-345)
    - 4: flexible
    - 5: protocol type and name, which must be those of the group (KIP-559)

    The leader of the group sends the assignments of all members. The response to another member is delayed by the group
    coordinator until the leader has sent them.
    """
    return await port.groups.sync_group(ctx, request)


async def heartbeat(port: GroupsPort, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Heartbeat (key 12), versions 0 to 4.

    - 0: renews the session of a member of a classic group
    - 1: throttle time in the response
    - 2: as 1
    - 3: group instance id of a static member (KIP-345)
    - 4: flexible

    The response is sent at once. REBALANCE_IN_PROGRESS requests the member to rejoin.
    """
    return await port.groups.heartbeat(ctx, request)


async def leave_group(port: GroupsPort, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """LeaveGroup (key 13), versions 0 to 5.

    - 0: removes one member from a classic group
    - 1: throttle time in the response
    - 2: as 1
    - 3: several members, by member id or group instance id (KIP-345)
    - 4: flexible
    - 5: the reason for leaving (KIP-800)
    """
    return await port.groups.leave_group(ctx, request)


async def offset_commit(port: GroupsPort, ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """OffsetCommit (key 8), versions 2 to 10.

    - 2: retention time
    - 3: throttle time in the response
    - 4: as 3
    - 5: without the retention time, which only the broker configures (KIP-211)
    - 6: leader epoch of each committed offset (KIP-320)
    - 7: group instance id of a static member (KIP-345)
    - 8: flexible
    - 9: member epochs of the consumer group protocol; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848)
    - 10: topic ids in place of names (KIP-848)

    Commits offsets for a member of a group, or for a consumer that assigns its partitions itself. The response is sent
    when the offsets are committed to `__consumer_offsets`.
    """
    return await port.groups.offset_commit(ctx, request)


async def offset_fetch(port: GroupsPort, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """OffsetFetch (key 9), versions 1 to 10.

    - 1: committed offsets of the listed partitions, from `__consumer_offsets`
    - 2: the offsets of all partitions, if the list is null; a top-level error code
    - 3: throttle time in the response
    - 4: as 3
    - 5: leader epoch of each committed offset (KIP-320)
    - 6: flexible
    - 7: RequireStable, with UNSTABLE_OFFSET_COMMIT while a transaction has offsets pending (KIP-447)
    - 8: several groups in one request (KIP-709)
    - 9: member id and member epoch of the consumer group protocol (KIP-848)
    - 10: topic ids in place of names (KIP-848)

    A partition without a committed offset has offset -1 and no error.
    """
    return await port.groups.offset_fetch(ctx, request)


async def offset_delete(port: GroupsPort, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """OffsetDelete (key 47), version 0.

    - 0: deletes committed offsets of a group (KIP-496)

    A topic to which the group is subscribed is answered with GROUP_SUBSCRIBED_TO_TOPIC.
    """
    return await port.groups.offset_delete(ctx, request)


async def list_groups(port: GroupsPort, ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """ListGroups (key 16), versions 0 to 5.

    - 0: the groups that this broker coordinates
    - 1: throttle time in the response
    - 2: as 1
    - 3: flexible
    - 4: a filter by group state (KIP-518)
    - 5: a filter by group type (KIP-848)
    """
    return await port.groups.list_groups(ctx, request)


async def delete_groups(port: GroupsPort, ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """DeleteGroups (key 42), versions 0 to 2.

    - 0: deletes groups without members, with their offsets (KIP-229)
    - 1: as 0
    - 2: flexible

    For a share group the state of its share partitions is deleted first, at the share coordinators. If that fails, or
    the broker crashes between the two steps, the group is kept and can be deleted again.
    """
    return await port.share_groups.delete_groups(ctx, request, port.groups.delete_groups)


async def consumer_group_heartbeat(
    port: GroupsPort, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat (key 68), versions 0 to 1.

    - 0: the consumer group protocol (KIP-848)
    - 1: a regular expression over topic names, which the broker matches (SubscribedTopicRegex); the client generates
      its member id (KIP-1082)

    A member joins its group, renews its session, changes its subscription, reports its partitions, receives its
    assignment and leaves the group with this one request. The response is sent when the records of the change are
    committed. While the feature `group.version` is 0 the response is UNSUPPORTED_VERSION.
    """
    require_consumer_groups(port.metadata)
    return await port.groups.consumer_group_heartbeat(ctx, request)


async def share_group_heartbeat(
    port: GroupsPort, ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """ShareGroupHeartbeat (key 76), version 1.

    - 1: the share group protocol (KIP-932)

    A member joins its group, renews its session, changes its subscription, receives its partitions and leaves the group
    with this one request. While the feature `share.version` is 0 the response is UNSUPPORTED_VERSION. Version 0 was
    Kafka's early-access version and is not served.
    """
    require_share_groups(port.metadata)
    return await port.share_groups.share_group_heartbeat(ctx, request)


async def alter_share_group_offsets(
    port: GroupsPort, ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """AlterShareGroupOffsets (key 91), version 0.

    - 0: sets the share-partition start offsets of a share group (KIP-932)

    The group must have no members. The group coordinator writes the new start offsets to the share coordinator with a
    new state epoch, which fences the partition leaders that still hold the old state. While the feature `share.version`
    is 0 the response is UNSUPPORTED_VERSION.
    """
    require_share_groups(port.metadata)
    return await port.share_groups.alter_share_group_offsets(ctx, request)


async def delete_share_group_offsets(
    port: GroupsPort, ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """DeleteShareGroupOffsets (key 92), version 0.

    - 0: deletes the share-partition state of topics from a share group (KIP-932)

    The group must have no members. While the feature `share.version` is 0 the response is UNSUPPORTED_VERSION.
    """
    require_share_groups(port.metadata)
    return await port.share_groups.delete_share_group_offsets(ctx, request)
