"""Shell: the group coordinator as the broker sees it: one async method per API, messages in, messages out.

Every method takes the request's context and its decoded message, and returns the response message with
per-group or top-level error codes inside; it raises nothing but bugs. Authorization, quotas and the choice of version
happen before (broker/dispatch). Methods that touch several groups ask the shard of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordination.ports import PartitionWriter, RequestContext, TopicCatalog
from barnabas.core.clock import Clock
from barnabas.core.rng import Rng

if TYPE_CHECKING:
    from barnabas.coordination.group.config import GroupCoordinatorConfig
    from barnabas.wire.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )
    from barnabas.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
    from barnabas.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
    from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
    from barnabas.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from barnabas.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from barnabas.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse


class GroupCoordinator:
    """All groups whose partition of `__consumer_offsets` this node leads."""

    def __init__(
        self, config: GroupCoordinatorConfig, writer: PartitionWriter, topics: TopicCatalog, clock: Clock, rng: Rng
    ) -> None: ...

    async def run(self) -> None:
        """Own the coordinator's tasks until cancelled. Start it before the first `on_elected`."""

    # -- leadership and metadata, called by the node ------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node now leads `__consumer_offsets-<partition>`: load it (answers are LOAD_IN_PROGRESS meanwhile)."""

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This node no longer leads it (None: the replica was deleted): unload, answer parked requests."""

    def on_partition_count(self, partitions: int) -> None:
        """How many partitions `__consumer_offsets` has; 0 while it does not exist."""

    def on_topics_changed(self, topics: TopicCatalog, deleted: frozenset[str]) -> None:
        """A new metadata image; offsets of deleted topics are dropped from all groups."""

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that owns the group; FindCoordinator asks here."""

    # -- classic groups -----------------------------------------------------------------------------

    async def join_group(self, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse: ...

    async def sync_group(self, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse: ...

    async def heartbeat(self, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse: ...

    async def leave_group(self, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse: ...

    async def describe_groups(self, ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse: ...

    async def list_groups(self, ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse: ...

    async def delete_groups(self, ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse: ...

    # -- offsets ------------------------------------------------------------------------------------

    async def offset_commit(self, ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse: ...

    async def offset_fetch(self, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse: ...

    async def offset_delete(self, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse: ...

    async def txn_offset_commit(
        self, ctx: RequestContext, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse: ...

    async def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, committed: bool
    ) -> None:
        """Write a transaction's marker to `__consumer_offsets-<partition>` and make its offsets count (or drop them).

        WriteTxnMarkers comes here for this topic instead of going to the partition. Raises KafkaError.
        """

    # -- consumer groups (KIP-848) ------------------------------------------------------------------

    async def consumer_group_heartbeat(
        self, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse: ...

    async def consumer_group_describe(
        self, ctx: RequestContext, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse: ...
