"""Shell: the group coordinator as the broker calls it (Kafka's GroupCoordinatorService): one async method per API.

Each method takes the request's context and the decoded request, and returns the response with per-group or top-level
error codes. The methods raise no KafkaError. The broker has checked authorization, quotas and the API version. A method
for several groups queries the shard of each group.

`group/shard.py` and the modules that it imports are loaded when this node first leads a partition of
`__consumer_offsets`, so that a broker without groups starts sooner and needs less memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC
from barnabas.core.rng import Rng
from barnabas.core.work import Pauses, in_slices
from barnabas.protocol.wire.messages import consumer_group_describe as described_consumers
from barnabas.protocol.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.protocol.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from barnabas.protocol.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.group.commit_build import (
    SLICE,
    BuiltCommit,
    CommitRules,
    Steps,
    build_offset_commit,
    build_txn_offset_commit,
    offset_count,
)
from barnabas.server.coordination.group.commit_size import check_commit_size, failed_commit, failed_txn_commit
from barnabas.server.coordination.group.config import GroupConfigs, GroupCoordinatorConfig, NoGroupConfigs
from barnabas.server.coordination.operation import Deferred, WriteOperation
from barnabas.server.coordination.ports import (
    GroupRequestContext,
    Marker,
    PartitionWriter,
    ProducerIdAndEpoch,
    TopicCatalog,
)
from barnabas.server.coordination.runtime import CoordinatorRuntime, RuntimeConfig
from barnabas.server.coordination.timeline import Timeline

if TYPE_CHECKING:
    from barnabas.protocol.wire.messages.explain_group import ExplainGroupRequest, ExplainGroupResponse
    from barnabas.server.coordination.group.shard import GroupShard
    from barnabas.server.coordination.topic_regexes import TopicRegexes

R = TypeVar("R")

_MEMBERS_AT_ONCE = 1_000
"""The number of members that one operation removes from a group."""
_GROUPS_AT_ONCE = 100
"""The number of groups that one operation deletes: each is deleted or rejected by itself."""


class GroupCoordinator:
    """The groups whose partition of `__consumer_offsets` this node leads."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        writer: PartitionWriter,
        topics: TopicCatalog,
        clock: Clock,
        rng: Rng,
        group_configs: GroupConfigs | None = None,
    ) -> None:
        self._config = config
        self._topics = topics
        self._clock = clock
        self._partitions = 0
        configs = group_configs or NoGroupConfigs()
        self._runtime = CoordinatorRuntime(
            RuntimeConfig(CONSUMER_OFFSETS_TOPIC, config.offsets_commit_timeout_ms),
            writer,
            clock,
            rng,
            lambda partition, timeline: _new_shard(config, configs, self._topics, timeline),
        )
        self._runtime.after_replay = self._catch_up
        self._regexes: TopicRegexes | None = None

    async def run(self) -> None:
        """Run the coordinator's tasks until cancelled. Must be running before the first `on_elected`."""
        await self._runtime.run()

    # -- leadership and metadata, called by the node -----------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load `__consumer_offsets-<partition>`, which this node leads now. Requests fail with
        COORDINATOR_LOAD_IN_PROGRESS until the partition is loaded."""
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload the partition, which this node no longer leads, and fail its pending requests. A `leader_epoch` of
        None means that the replica was deleted."""
        self._runtime.on_resigned(partition, leader_epoch)

    def on_partition_count(self, partitions: int) -> None:
        """Set the number of partitions of `__consumer_offsets`; 0 while the topic does not exist."""
        self._partitions = partitions

    def on_topics_changed(self, topics: TopicCatalog, deleted: frozenset[str] = frozenset()) -> None:
        """Use a new metadata image, and delete the offsets of deleted topics from all groups."""
        before, self._topics = self._topics, topics
        created = not set(topics.names()).issubset(before.names())
        self._runtime.run_on_all(lambda shard, op: shard.on_topics_changed(op, topics, deleted, created=created))

    def _catch_up(self, shard: GroupShard, op: WriteOperation) -> None:
        """Give a shard the topics that have changed while its log was replayed."""
        if shard.topics is not self._topics:
            deleted = frozenset(name for name in shard.topics.names() if self._topics.by_name(name) is None)
            shard.on_topics_changed(op, self._topics, deleted, created=True)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group. Used by FindCoordinator, too.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE while the topic does not exist.
        """
        if self._partitions == 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS_TOPIC} does not exist yet")
        return coordinator_partition(group_id, self._partitions)

    # -- classic groups ----------------------------------------------------------------------------------------------

    async def join_group(self, ctx: GroupRequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
        config = self._config
        try:
            _check_group_id(request.group_id)
            shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
            if not shortest <= request.session_timeout_ms <= longest:
                raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
            response = await self._write(
                request.group_id, lambda shard, op: shard.join_group(op, ctx, request), may_defer=True
            )
        except KafkaError as error:
            response = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
        if response.error_code:
            response.protocol_name = None
        if ctx.api_version < 7 and response.protocol_name is None:
            response.protocol_name = ""
        return response

    async def sync_group(self, ctx: GroupRequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
        try:
            if ctx.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # both are mandatory since KIP-559
            _check_group_id(request.group_id)
            return await self._write(
                request.group_id, lambda shard, op: shard.sync_group(op, ctx, request), may_defer=True
            )
        except KafkaError as error:
            return SyncGroupResponse(error_code=error.code)

    async def heartbeat(self, ctx: GroupRequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            _check_group_id(request.group_id)
            return await self._write(request.group_id, lambda shard, op: shard.heartbeat(op, ctx, request))
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()  # as in Kafka: the member's session timeout starts when loading completes
            return HeartbeatResponse(error_code=error.code)

    async def leave_group(self, ctx: GroupRequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
        single = ctx.api_version < 3
        if single:
            request = LeaveGroupRequest(
                group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)]
            )
        try:
            _check_group_id(request.group_id)
            response = await self._leave(ctx, request)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID or single:
                return LeaveGroupResponse(error_code=error.code)
            return LeaveGroupResponse(
                members=[
                    MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error.code)
                    for m in request.members
                ]
            )
        if single:
            return LeaveGroupResponse(error_code=response.members[0].error_code)
        return response

    async def _leave(self, ctx: GroupRequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove the members, at most _MEMBERS_AT_ONCE in one operation. Raises KafkaError."""
        response = LeaveGroupResponse()
        pauses = Pauses()
        for start in range(0, max(len(request.members), 1), _MEMBERS_AT_ONCE):
            part = LeaveGroupRequest(
                group_id=request.group_id, members=request.members[start : start + _MEMBERS_AT_ONCE]
            )
            leave: Callable[[GroupShard, WriteOperation], LeaveGroupResponse] = partial(_leave_part, ctx, part)
            response.members += (await self._write(request.group_id, leave)).members
            await pauses.after(len(part.members))
        return response

    async def describe_groups(self, ctx: GroupRequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        described = []
        pauses = Pauses()
        for group_id in request.groups:
            await pauses.after(1)
            describe = partial(_describe, group_id, ctx.api_version)
            try:
                described.append(self._read(group_id, describe))
            except KafkaError as error:
                described.append(DescribedGroup(group_id=group_id, error_code=error.code))
        return DescribeGroupsResponse(groups=described)

    async def list_groups(self, ctx: GroupRequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        if self._runtime.is_loading:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = frozenset(state.lower() for state in request.states_filter)
        types = frozenset(kind.lower() for kind in request.types_filter)
        listed: list[ListedGroup] = []
        pauses = Pauses()
        for _, shard in list(self._runtime.active()):
            listed.extend(shard.admin.list_groups(states, types))
            await pauses.after(1 + len(shard.table.by_id) // 5)
        return ListGroupsResponse(groups=listed)

    async def delete_groups(self, ctx: GroupRequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        by_partition: dict[int, list[str]] = {}
        results: dict[str, DeletableGroupResult] = {}
        pauses = Pauses()
        for group_id in dict.fromkeys(request.groups_names):
            await pauses.after(1)
            try:
                by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
            except KafkaError as error:
                results[group_id] = DeletableGroupResult(group_id=group_id, error_code=error.code)
        parts = [
            (partition, group_ids[start : start + _GROUPS_AT_ONCE])
            for partition, group_ids in by_partition.items()
            for start in range(0, len(group_ids), _GROUPS_AT_ONCE)
        ]
        for partition, group_ids in parts:
            await pauses.after(len(group_ids))
            delete: Callable[[GroupShard, WriteOperation], list[DeletableGroupResult]] = partial(_delete, group_ids)
            try:
                deleted = await self._runtime.write(partition, delete)
            except KafkaError as error:
                deleted = [DeletableGroupResult(group_id=g, error_code=error.code) for g in group_ids]
            results.update((result.group_id, result) for result in deleted)
        return DeleteGroupsResponse(results=[results[group_id] for group_id in dict.fromkeys(request.groups_names)])

    async def explain_group(self, ctx: GroupRequestContext, request: ExplainGroupRequest) -> ExplainGroupResponse:
        from barnabas.protocol.wire.messages.explain_group import (  # imported here because a broker starts without it
            ExplainedGroup,
            ExplainGroupResponse,
        )
        from barnabas.server.coordination.group.explain import explain

        explained = []
        for group_id in request.group_ids:
            try:
                context = self._runtime.context(self.partition_for(group_id))
                shard, remaining_ms = context.shard, context.timers.remaining_ms
                explained.append(
                    explain(shard.table, shard.offsets, shard.topics, group_id, remaining_ms, self._clock.now_ms())
                )
            except KafkaError as error:
                code = error_for_client(error.code)
                explained.append(ExplainedGroup(group_id=group_id, error_code=code, error_message=str(error)))
        return ExplainGroupResponse(groups=explained)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def offset_commit(self, ctx: GroupRequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
        try:
            check_commit_size(request.group_id, request.topics, self._config.message_max_bytes)
            built: BuiltCommit[OffsetCommitResponse] | None = None
            if offset_count(request) > SLICE:
                rules = self._commit_rules(ctx, request.group_id)
                built = await in_slices(build_offset_commit(rules, self._topics, request))
            return await self._write(
                request.group_id, lambda shard, op: shard.offsets.commit(op, ctx, shard.topics, request, built)
            )
        except KafkaError as error:
            return await failed_commit(request, error.code)

    async def offset_fetch(self, ctx: GroupRequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if ctx.api_version >= 8:
            groups = [await self._fetch_group(ctx, group, stable=request.require_stable) for group in request.groups]
            return OffsetFetchResponse(groups=groups)
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics
            ]
        requested = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        group = await self._fetch_group(ctx, requested, stable=request.require_stable)
        return _single_group_response(ctx.api_version, requested, group)

    async def _fetch_group(
        self, ctx: GroupRequestContext, request: OffsetFetchRequestGroup, *, stable: bool
    ) -> OffsetFetchResponseGroup:
        version = ctx.api_version
        try:
            if not stable:
                steps = self._read(
                    request.group_id, lambda shard: shard.offsets.fetch(shard.topics, request, version, stable=False)
                )
                return await in_slices(steps)

            def newest(shard: GroupShard, op: WriteOperation) -> Steps[OffsetFetchResponseGroup]:
                op.wait_for_pending = True
                return shard.offsets.fetch(shard.topics, request, version, stable=True)

            return await in_slices(await self._write(request.group_id, newest))
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.code)

    async def offset_delete(self, ctx: GroupRequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        try:
            _check_group_id(request.group_id)
            return await self._write(
                request.group_id, lambda shard, op: shard.offsets.delete(op, shard.topics, request)
            )
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code)

    def _commit_rules(self, ctx: GroupRequestContext, group_id: str) -> CommitRules:
        """The rules for a large commit, which is built and encoded before its operation. Raises KafkaError."""
        shard = self._runtime.context(self.partition_for(group_id)).shard
        return shard.offsets.commit_rules(ctx.api_version, self._clock.now_ms(), shard.log_format.encode)

    async def txn_offset_commit(
        self, ctx: GroupRequestContext, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        try:
            _check_group_id(request.group_id)
            check_commit_size(request.group_id, request.topics, self._config.message_max_bytes)
            built: BuiltCommit[TxnOffsetCommitResponse] | None = None
            if offset_count(request) > SLICE:
                rules = self._commit_rules(ctx, request.group_id)
                built = await in_slices(build_txn_offset_commit(rules, self._topics, request))
            return await self._write(
                request.group_id,
                lambda shard, op: shard.offsets.commit_transactional(op, ctx, shard.topics, request, built),
            )
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.GROUP_ID_NOT_FOUND:
                code = ErrorCode.ILLEGAL_GENERATION
            return await failed_txn_commit(request, code)

    async def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
        deadline: float | None = None,
    ) -> None:
        """Write a transaction marker to `__consumer_offsets-<partition>`, which commits or drops the transaction's
        offsets. WriteTxnMarkers calls this method for `__consumer_offsets` instead of appending to the partition.
        Raises KafkaError."""
        marker = Marker(ProducerIdAndEpoch(producer_id, producer_epoch), coordinator_epoch, committed)
        await self._runtime.end_transaction(partition, marker, deadline)

    # -- consumer groups (KIP-848) -----------------------------------------------------------------------------------

    async def consumer_group_heartbeat(
        self, ctx: GroupRequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        try:
            await self._prepare_regexes(request)
            return await self._write(
                request.group_id, lambda shard, op: shard.consumer_group_heartbeat(op, ctx, request)
            )
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))

    async def _prepare_regexes(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Match the regular expressions that may be resolved after the heartbeat with the topics: its own, and after a
        change of the topics those of the whole group. Raises KafkaError."""
        shard = self._runtime.context(self.partition_for(request.group_id)).shard
        patterns = shard.regexes_of(request.group_id)
        if request.subscribed_topic_regex:
            patterns.add(request.subscribed_topic_regex)
        while patterns:
            if self._regexes is None:
                from barnabas.server.coordination.topic_regexes import TopicRegexes

                self._regexes = TopicRegexes()
            topics = self._topics
            await self._regexes.prepare(topics, sorted(patterns))
            if topics is self._topics:
                return

    async def consumer_group_describe(
        self, ctx: GroupRequestContext, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        described = []
        pauses = Pauses()
        for group_id in request.group_ids:
            await pauses.after(1)
            try:
                described.append(self._read(group_id, partial(_describe_consumers, group_id)))
            except KafkaError as error:
                described.append(
                    described_consumers.DescribedGroup(
                        group_id=group_id, error_code=error.code, error_message=str(error)
                    )
                )
        return ConsumerGroupDescribeResponse(groups=described)

    # -- GroupRuntime, for group/share/service ---------------------------------------------------------------------

    @property
    def topics(self) -> TopicCatalog:
        return self._topics

    async def write(self, group_id: str, decide: Callable[[GroupShard, WriteOperation], R | Deferred]) -> R:
        """Execute one operation on the group's shard. Raises KafkaError."""
        return await self._write(group_id, decide)

    def read(self, group_id: str, query: Callable[[GroupShard], R]) -> R:
        """Query the committed state of the group's shard. Raises KafkaError."""
        return self._read(group_id, query)

    # -- shards -----------------------------------------------------------------------------------------------------

    async def _write(
        self, group_id: str, decide: Callable[[GroupShard, WriteOperation], R | Deferred], *, may_defer: bool = False
    ) -> R:
        return await self._runtime.write(self.partition_for(group_id), decide, may_defer=may_defer)

    def _read(self, group_id: str, query: Callable[[GroupShard], R]) -> R:
        try:
            return self._runtime.read(self.partition_for(group_id), query)
        except KafkaError as error:
            raise KafkaError(error_for_client(error.code), error.detail) from error


def _new_shard(
    config: GroupCoordinatorConfig, group_configs: GroupConfigs, topics: TopicCatalog, timeline: Timeline
) -> GroupShard:
    from barnabas.server.coordination.group.shard import GroupShard

    return GroupShard(config, group_configs, topics, timeline)


def _describe(group_id: str, api_version: int, shard: GroupShard) -> DescribedGroup:
    return shard.admin.describe_group(group_id, api_version)


def _describe_consumers(group_id: str, shard: GroupShard) -> described_consumers.DescribedGroup:
    return shard.admin.describe_consumer_group(group_id)


def _leave_part(
    ctx: GroupRequestContext, request: LeaveGroupRequest, shard: GroupShard, op: WriteOperation
) -> LeaveGroupResponse:
    return shard.leave_group(op, ctx, request)


def _delete(group_ids: Sequence[str], shard: GroupShard, op: WriteOperation) -> list[DeletableGroupResult]:
    return shard.admin.delete_groups(op, group_ids)


def _check_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID for an empty group id, which only OffsetCommit and OffsetFetch accept."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _single_group_response(
    api_version: int, requested: OffsetFetchRequestGroup, group: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """The response of OffsetFetch before version 8, which serves one group. Before version 2 there is no top-level
    error code, so each partition has the group's error."""
    if group.error_code and api_version >= 2:
        return OffsetFetchResponse(error_code=group.error_code)
    topics: Sequence[OffsetFetchResponseTopics] = group.topics
    if group.error_code:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=p, committed_offset=-1, metadata="", error_code=group.error_code
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in requested.topics or ()
        ]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in topics
        ]
    )
