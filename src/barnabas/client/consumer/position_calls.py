"""Shell: the consumer's calls about positions and offsets: seek, pause, lag, and the offsets that a partition has."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.positions import Positions
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.errors import RequestTimeoutError
from barnabas.client.offsets import list_offsets, offsets_at
from barnabas.client.values import EARLIEST, LATEST, IsolationLevel, OffsetAndMetadata, OffsetAndTimestamp
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.core.ids import TopicPartition


@checks_arguments()
class PositionCalls(ABC):
    """The methods of `AsyncConsumer` that read and set positions, and look up offsets."""

    cluster: Cluster
    _isolation: IsolationLevel
    _positions: Positions
    _subscription: SubscriptionState
    _timeout_ms: int

    @abstractmethod
    def _deadline(self, timeout_ms: float | None) -> float: ...

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue from an offset."""
        where = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if where.offset < 0:
            raise ConfigError(f"An offset cannot be negative: {where.offset}. See seek_to_beginning and seek_to_end.")
        self._subscription.seek(partition, where.offset, where.leader_epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue from the log start of these partitions, or of all assigned ones."""
        for partition in partitions or tuple(self._subscription.partitions):
            self._subscription.request_reset(partition, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue from the end of these partitions, or of all assigned ones."""
        for partition in partitions or tuple(self._subscription.partitions):
            self._subscription.request_reset(partition, LATEST)

    async def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue from the first record at or after a time, or from the end of a partition without such a record."""
        wanted = partitions or tuple(self._subscription.partitions)
        found = await self.offsets_for_times(dict.fromkeys(wanted, timestamp_ms))
        for partition, answer in found.items():
            if answer is None:
                self._subscription.request_reset(partition, LATEST)
            else:
                self._subscription.seek(partition, answer.offset)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue from the committed offsets, to read records again after an aborted transaction."""
        for partition in partitions or tuple(self._subscription.partitions):
            self._subscription.forget(partition)

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record that `poll` will return."""
        deadline = self._deadline(timeout_ms)
        state = self._subscription.state(partition)
        while state.returned is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._positions.update()
            except TimeoutError as error:
                if isinstance(error, BarnabasError):
                    raise
            if state.returned is None:
                if self.cluster.now() >= deadline:
                    raise RequestTimeoutError(
                        f"The position of {partition} was not found within the time of the call (timeout_ms, or"
                        f" default.api.timeout.ms: {self._timeout_ms}).{self.cluster.problems.hint()}"
                    )
                await self.cluster.backoff(0, deadline)
        return state.returned[0]

    def lag(self, partition: TopicPartition) -> int | None:
        """The lag in offsets, according to the last fetch; None before the first fetch."""
        state = self._subscription.state(partition)
        end = state.last_stable_offset if self._isolation is IsolationLevel.READ_COMMITTED else state.high_watermark
        return None if state.returned is None or end < 0 else max(end - state.returned[0], 0)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions until they are resumed."""
        for partition in partitions:
            self._subscription.state(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        for partition in partitions:
            self._subscription.state(partition).paused = False

    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        return frozenset(p for p, state in self._subscription.partitions.items() if state.paused)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offset of the first record at or after each time; None for a partition without such a record."""
        found = await list_offsets(
            self.cluster, timestamps, isolation=self._isolation, deadline=self._deadline(timeout_ms)
        )
        results: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for partition, answer in found.items():
            if isinstance(answer, KafkaError):
                raise answer
            results[partition] = answer if answer.offset >= 0 else None
        return results

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offsets."""
        return await self._offsets_at(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of the log; with read_committed the last stable offsets."""
        return await self._offsets_at(dict.fromkeys(partitions, LATEST))

    async def _offsets_at(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return await offsets_at(self.cluster, wanted, isolation=self._isolation, deadline=self._deadline(None))
