"""Shell: the group coordinator's calls for committed offsets, with and without a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses, in_slices
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
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
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
from barnabas.server.coordination.group.shards import GroupShards, check_group_id
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext, Marker, ProducerIdAndEpoch

if TYPE_CHECKING:
    from barnabas.server.coordination.group.shard import GroupShard


class OffsetCalls(GroupShards):
    """OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit, and the end of a transaction."""

    async def offset_commit(self, ctx: GroupRequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
        try:
            check_commit_size(request.group_id, request.topics, self._config.message_max_bytes)
            built: BuiltCommit[OffsetCommitResponse] | None = None
            if offset_count(request) > SLICE:
                rules = self._commit_rules(ctx, request.group_id)
                built = await in_slices(build_offset_commit(rules, self._topics, request))
            return await self.write(
                request.group_id, lambda shard, op: shard.offsets.commit(op, ctx, shard.topics, request, built)
            )
        except KafkaError as error:
            return await failed_commit(request, error.code)

    async def offset_fetch(self, ctx: GroupRequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if ctx.api_version >= 8:
            groups = []
            pauses = Pauses()
            for one in request.groups:
                groups.append(await self._fetch_group(ctx, one, stable=request.require_stable))
                await pauses.after(1)
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
                steps = self.read(
                    request.group_id, lambda shard: shard.offsets.fetch(shard.topics, request, version, stable=False)
                )
                return await in_slices(steps)

            def newest(shard: GroupShard, op: WriteOperation) -> Steps[OffsetFetchResponseGroup]:
                op.wait_for_pending = True
                return shard.offsets.fetch(shard.topics, request, version, stable=True)

            return await in_slices(await self.write(request.group_id, newest))
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.code)

    async def offset_delete(self, ctx: GroupRequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        try:
            check_group_id(request.group_id)
            return await self.write(request.group_id, lambda shard, op: shard.offsets.delete(op, shard.topics, request))
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code)

    def _commit_rules(self, ctx: GroupRequestContext, group_id: str) -> CommitRules:
        """The rules for a large commit, which is built and encoded before its operation. Raises KafkaError."""
        shard = self.context(group_id).shard
        return shard.offsets.commit_rules(ctx.api_version, self._clock.now_ms(), shard.log_format.encode)

    async def txn_offset_commit(
        self, ctx: GroupRequestContext, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        try:
            check_group_id(request.group_id)
            check_commit_size(request.group_id, request.topics, self._config.message_max_bytes)
            built: BuiltCommit[TxnOffsetCommitResponse] | None = None
            if offset_count(request) > SLICE:
                rules = self._commit_rules(ctx, request.group_id)
                built = await in_slices(build_txn_offset_commit(rules, self._topics, request))
            return await self.write(
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
