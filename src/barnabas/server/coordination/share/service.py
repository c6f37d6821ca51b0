"""Shell: the share coordinator as the broker calls it (Kafka's ShareCoordinatorService): one async method per API.

A request may have many share partitions. Each is a separate operation, on the partition of `__share_group_state` to
which its key hashes, and has its own result. The methods raise no KafkaError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import SHARE_STATE_TOPIC, TopicId, TopicPartition
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.core.work import for_each
from barnabas.protocol.wire.messages import delete_share_group_state as deleting
from barnabas.protocol.wire.messages import initialize_share_group_state as initializing
from barnabas.protocol.wire.messages import read_share_group_state as reading
from barnabas.protocol.wire.messages import read_share_group_state_summary as summing
from barnabas.protocol.wire.messages import write_share_group_state as writing
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import PartitionWriter, TopicCatalog
from barnabas.server.coordination.runtime import CoordinatorRuntime, RuntimeConfig
from barnabas.server.coordination.share.config import ShareCoordinatorConfig
from barnabas.server.coordination.share.ports import LogPruner
from barnabas.server.coordination.share.state import PersisterStateBatch, ShareKey, ShareState, StateWrite
from barnabas.server.coordination.timeline import Timeline

if TYPE_CHECKING:
    from barnabas.server.coordination.share.shard import ShareShard

R = TypeVar("R")
V = TypeVar("V")

log = get_logger("barnabas.server.coordination")


class ShareCoordinator:
    """The share partitions whose partition of `__share_group_state` this node leads."""

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        writer: PartitionWriter,
        pruner: LogPruner,
        topics: TopicCatalog,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._config = config
        self._pruner = pruner
        self._topics = topics
        self._partitions = 0
        self._pruned: dict[int, int] = {}
        self._runtime = CoordinatorRuntime(
            RuntimeConfig(SHARE_STATE_TOPIC, config.share_coordinator_write_timeout_ms),
            writer,
            clock,
            rng,
            self._new_shard,
            self._catch_up,
        )

    def _new_shard(self, partition: int, timeline: Timeline) -> ShareShard:
        """A new state machine for a partition. The module of the state machine is imported with the first partition, so
        that a broker without share groups starts sooner."""
        from barnabas.server.coordination.share.shard import ShareShard

        return ShareShard(self._config, self._topics, timeline)

    async def run(self) -> None:
        """Run the coordinator's tasks until cancelled. Must be running before the first `on_elected`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._prune(), name="prune share state")
            await self._runtime.run()

    # -- leadership and metadata, called by the node -----------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        self._runtime.on_resigned(partition, leader_epoch)

    def on_partition_count(self, partitions: int) -> None:
        """Set the number of partitions of `__share_group_state`; 0 while the topic does not exist."""
        self._partitions = partitions

    def on_topics_changed(self, topics: TopicCatalog, deleted: frozenset[TopicId] = frozenset()) -> None:
        """Use a new metadata image, and delete the state of deleted topics."""
        self._topics = topics
        self._runtime.run_on_all(lambda shard, op: shard.on_topics_changed(op, topics, deleted))

    def _catch_up(self, shard: ShareShard, op: WriteOperation) -> None:
        """Give a shard the topics that have changed while its log was replayed."""
        if shard.topics is not self._topics:
            deleted = {key.topic_id for key in shard.states if self._topics.by_id(key.topic_id) is None}
            shard.on_topics_changed(op, self._topics, frozenset(deleted))

    def partition_for(self, coordinator_key: str) -> int:
        """The partition of `__share_group_state` that has a share partition. Raises KafkaError NOT_COORDINATOR while
        this broker does not know the topic (see `GroupShards.partition_for`)."""
        if self._partitions == 0:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"This broker does not know {SHARE_STATE_TOPIC} yet.")
        return coordinator_partition(coordinator_key, self._partitions)

    async def _prune(self) -> None:
        """Periodically delete the records that precede the snapshots of all share partitions."""
        while True:
            await asyncio.sleep(self._config.share_coordinator_state_topic_prune_interval_ms / 1000)
            for partition, shard in list(self._runtime.active()):
                before = shard.redundant_before()
                if before <= self._pruned.get(partition, 0):
                    continue
                try:
                    await self._pruner.delete_before(TopicPartition(SHARE_STATE_TOPIC, partition), before)
                    self._pruned[partition] = before
                except KafkaError as error:
                    log.warning("share state could not be pruned", partition=partition, error=error.code.name)

    # -- the APIs ----------------------------------------------------------------------------------------------------

    async def initialize_share_group_state(
        self, request: initializing.InitializeShareGroupStateRequest
    ) -> initializing.InitializeShareGroupStateResponse:
        async def one(key: ShareKey, requested: initializing.PartitionData) -> initializing.PartitionResult:
            result = initializing.PartitionResult(partition=key.partition)
            epoch, start = requested.state_epoch, requested.start_offset
            await self._run_operation(result, key, lambda shard, op: shard.initialize(op, key, epoch, start))
            return result

        topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
        return initializing.InitializeShareGroupStateResponse(
            results=[
                initializing.InitializeStateResult(topic_id=topic_id, partitions=results)
                for topic_id, results in await _for_each_partition(request.group_id, topics, one)
            ]
        )

    async def read_share_group_state(
        self, request: reading.ReadShareGroupStateRequest
    ) -> reading.ReadShareGroupStateResponse:
        async def one(key: ShareKey, requested: reading.PartitionData) -> reading.PartitionResult:
            result = reading.PartitionResult(partition=key.partition)
            epoch = requested.leader_epoch
            state = await self._run_operation(result, key, lambda shard, op: shard.read(op, key, epoch))
            if state is not None:
                result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
                result.state_batches = [
                    reading.StateBatch(
                        first_offset=b.first, last_offset=b.last, delivery_state=b.state, delivery_count=b.deliveries
                    )
                    for b in state.batches
                ]
            return result

        topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
        return reading.ReadShareGroupStateResponse(
            results=[
                reading.ReadStateResult(topic_id=topic_id, partitions=results)
                for topic_id, results in await _for_each_partition(request.group_id, topics, one)
            ]
        )

    async def write_share_group_state(
        self, request: writing.WriteShareGroupStateRequest
    ) -> writing.WriteShareGroupStateResponse:
        async def one(key: ShareKey, requested: writing.PartitionData) -> writing.PartitionResult:
            result = writing.PartitionResult(partition=key.partition)
            update = StateWrite(
                requested.state_epoch,
                requested.leader_epoch,
                requested.start_offset,
                requested.delivery_complete_count,
                tuple(
                    PersisterStateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
                    for b in requested.state_batches
                ),
            )
            await self._run_operation(result, key, lambda shard, op: shard.write(op, key, update))
            return result

        topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
        return writing.WriteShareGroupStateResponse(
            results=[
                writing.WriteStateResult(topic_id=topic_id, partitions=results)
                for topic_id, results in await _for_each_partition(request.group_id, topics, one)
            ]
        )

    async def delete_share_group_state(
        self, request: deleting.DeleteShareGroupStateRequest
    ) -> deleting.DeleteShareGroupStateResponse:
        async def one(key: ShareKey, requested: deleting.PartitionData) -> deleting.PartitionResult:
            result = deleting.PartitionResult(partition=key.partition)
            await self._run_operation(result, key, lambda shard, op: shard.delete(op, key))
            return result

        topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
        return deleting.DeleteShareGroupStateResponse(
            results=[
                deleting.DeleteStateResult(topic_id=topic_id, partitions=results)
                for topic_id, results in await _for_each_partition(request.group_id, topics, one)
            ]
        )

    async def read_share_group_state_summary(
        self, request: summing.ReadShareGroupStateSummaryRequest
    ) -> summing.ReadShareGroupStateSummaryResponse:
        async def one(key: ShareKey, requested: summing.PartitionData) -> summing.PartitionResult:
            result = summing.PartitionResult(partition=key.partition)
            state: ShareState | None = await self._run_operation(result, key, partial(_summary, key))
            if state is not None:
                result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
                result.start_offset, result.delivery_complete_count = state.start_offset, state.complete_count
            return result

        topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
        return summing.ReadShareGroupStateSummaryResponse(
            results=[
                summing.ReadStateSummaryResult(topic_id=topic_id, partitions=results)
                for topic_id, results in await _for_each_partition(request.group_id, topics, one)
            ]
        )

    async def _run_operation(
        self,
        result: (
            initializing.PartitionResult
            | reading.PartitionResult
            | writing.PartitionResult
            | deleting.PartitionResult
            | summing.PartitionResult
        ),
        key: ShareKey,
        decide: Callable[[ShareShard, WriteOperation], R],
    ) -> R | None:
        """Execute one operation. An error is stored in the result."""
        try:
            if not key.group_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id cannot be empty.")
            return await self._runtime.write(self.partition_for(key.coordinator_key), decide)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, str(error)
            return None


def _summary(key: ShareKey, shard: ShareShard, op: WriteOperation) -> ShareState:
    return shard.summary(op, key)


async def _for_each_partition(
    group_id: str, topics: Sequence[tuple[TopicId, Sequence[V]]], one: Callable[[ShareKey, V], Awaitable[R]]
) -> list[tuple[TopicId, list[R]]]:
    """Handle every share partition of a request. The operations start in order, and wait for their commits together,
    TASKS_AT_ONCE of them at a time."""

    async def run(requested: tuple[TopicId, V]) -> R:
        topic_id, partition = requested
        return await one(ShareKey(group_id, topic_id, _index(partition)), partition)

    results = iter(await for_each(run, ((topic_id, p) for topic_id, partitions in topics for p in partitions)))
    return [(topic_id, list(islice(results, len(partitions)))) for topic_id, partitions in topics]


def _index(partition: object) -> int:
    index = getattr(partition, "partition")  # noqa: B009 - the five request types have this field, but no common base class
    assert isinstance(index, int)
    return index
