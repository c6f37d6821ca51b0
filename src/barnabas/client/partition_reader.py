"""Shell: reads exact offset ranges of partitions from their leaders, for pipelines.

    reader = PartitionReader(cluster)
    async for fetched in reader.batches([OffsetRange(TopicPartition("orders", 0), 1_000, 9_000)]):
        ...                                    # raw record batches
    async for partition, table in reader.arrow(ranges, columns=("value", "offset")):
        ...                                    # pyarrow.RecordBatch, only the offsets of the range

A range may begin or end at any offset: inside a batch, in a gap that compaction left, at a transaction marker. The
position advances to the offset after the last batch. A range is complete when the position has reached its end, or when
the log has no more records before the end. The next fetch is sent to a leader before the records of the previous fetch
are returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.errors import OffsetOutOfRangeError, RequestTimeoutError, TopicReplacedError
from barnabas.client.fetch_sizes import FetchSizes
from barnabas.client.fetching import (
    ConsumerFetchConfig,
    FetchTarget,
    build_fetch,
    fetched,
    note_leader_hints,
    partitions_of,
)
from barnabas.client.offsets import list_offsets
from barnabas.client.values import EARLIEST, LATEST, FetchedBatches, IsolationLevel
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_LIMITS: Final = ConsumerFetchConfig(max_bytes=52_428_800, partition_max_bytes=8_388_608)
REPLACED_AFTER_S: Final = 2.0
"""How long the metadata must have another topic than that of a range before the range fails."""
STALL_TIMEOUT_MS: Final = 120_000
"""The time without progress after which a range fails (the default of Spark's `kafkaConsumer.pollTimeoutMs`)."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `start` to before `end` of one partition."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: UUID = NO_TOPIC_ID
    """The id of the topic that the offsets belong to; NO_TOPIC_ID: that of the topic at the first fetch."""


@dataclass(slots=True)
class _Progress:
    """The position in one range."""

    partition: TopicPartition
    position: int
    end: int
    moved_at: float
    failures: int = 0
    retry_at: float = 0.0
    last_error: KafkaError | None = None
    topic_id: UUID = NO_TOPIC_ID
    """The id of the topic that the range is of; NO_TOPIC_ID before the first fetch of a range that does not say so."""
    other_since: float | None = None
    """The time at which the metadata was first found to have another topic id."""

    @property
    def done(self) -> bool:
        return self.position >= self.end

    def is_of_another(self, topic_id: UUID) -> bool:
        """Whether the range is of another topic than the one with this id."""
        return self.topic_id != topic_id and NO_TOPIC_ID not in (self.topic_id, topic_id)


@dataclass(slots=True)
class _InFlight:
    """One fetch in flight: its ranges, and the names of its topic ids."""

    future: asyncio.Future[FetchResponse]
    ranges: dict[TopicPartition, _Progress]
    names: dict[Any, str] = field(default_factory=dict)


class PartitionReader:
    """Reads ranges through a `Cluster`. Keeps no state between calls; several reads may run at once."""

    def __init__(
        self,
        cluster: Cluster,
        limits: ConsumerFetchConfig = DEFAULT_LIMITS,
        *,
        stall_timeout_ms: float = STALL_TIMEOUT_MS,
        sizes: FetchSizes | None = None,
    ) -> None:
        """`sizes` limits each fetch to about the rest of its range; several readers may share it."""
        self.cluster = cluster
        self.limits = limits
        self._sizes = sizes
        self._stall_s = stall_timeout_ms / 1000.0

    async def batches(self, ranges: Iterable[OffsetRange]) -> AsyncGenerator[FetchedBatches, None]:
        """Yield the raw batches of all ranges: in order within a partition, and in the order of arrival between
        partitions.

        A buffer may have records outside the range, because batches are never cut. Raises OffsetOutOfRangeError when a
        range is no longer in the log, its subclass TopicReplacedError when the topic was deleted and created again,
        RequestTimeoutError without progress for the stall time-out, and KafkaError for errors that are not retried
        (authorization, a deleted topic).
        """
        now = self.cluster.now()
        todo = {
            r.partition: _Progress(r.partition, r.start, r.end, now, topic_id=r.topic_id)
            for r in ranges
            if r.start < r.end
        }
        in_flight: dict[int, _InFlight] = {}
        try:
            while todo:
                await self._send_fetches(todo, in_flight)
                if not in_flight:
                    await self._wait_for_retry(todo)
                    continue
                futures = {fetch.future: leader for leader, fetch in in_flight.items()}
                done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
                arrived: list[FetchedBatches] = []
                for future in done:
                    fetch = in_flight.pop(futures[future])
                    arrived += await self._take(fetch, todo)
                await self._send_fetches(todo, in_flight)
                for batches in arrived:
                    yield batches
        finally:
            for fetch in in_flight.values():
                fetch.future.cancel()

    async def arrow(
        self,
        ranges: Sequence[OffsetRange],
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        check_crcs: bool = True,
    ) -> AsyncGenerator[tuple[TopicPartition, pa.RecordBatch], None]:
        """The records of all ranges as Arrow, without markers, and under READ_COMMITTED without aborted records."""
        from barnabas.client.columns.arrow import decode_batches

        bounds = {r.partition: r for r in ranges}
        async for batches in self.batches(ranges):
            wanted = bounds[batches.partition]
            for table in decode_batches(
                batches,
                wanted.start,
                wanted.end,
                isolation=self.limits.isolation,
                columns=columns,
                include_headers=include_headers,
                check_crcs=check_crcs,
            ):
                yield batches.partition, table

    # -- fetches ---------------------------------------------------------------------------------------------------

    async def _send_fetches(self, todo: dict[TopicPartition, _Progress], in_flight: dict[int, _InFlight]) -> None:
        """Send a fetch to every leader of unfinished ranges that has no fetch in flight."""
        now = self.cluster.now()
        busy = {partition for fetch in in_flight.values() for partition in fetch.ranges}
        idle = [p for p in todo.values() if p.partition not in busy and p.retry_at <= now]
        if not idle:
            return
        groups: dict[int, dict[TopicPartition, _Progress]] = {}
        views = await self.cluster.topics({p.partition.topic for p in idle})
        for progress in idle:
            topic = views[progress.partition.topic]
            index = progress.partition.partition
            if topic.error is not ErrorCode.NONE or not 0 <= index < len(topic.partitions):
                code = topic.error if topic.error is not ErrorCode.NONE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._postpone(progress, KafkaError(code, f"{progress.partition}: {code.message}"))
            elif topic.partitions[index].leader not in self.cluster.metadata.brokers:
                self._postpone(progress, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
            elif topic.partitions[index].leader not in in_flight:
                if progress.is_of_another(topic.topic_id):
                    self._find_another(progress, topic.topic_id)
                    continue
                progress.topic_id, progress.other_since = topic.topic_id, None
                groups.setdefault(topic.partitions[index].leader, {})[progress.partition] = progress
        for leader, group in groups.items():
            fetch = await self._send_fetch(leader, group)
            if fetch is not None:
                in_flight[leader] = fetch

    async def _send_fetch(self, leader: int, group: dict[TopicPartition, _Progress]) -> _InFlight | None:
        cluster = self.cluster
        targets = []
        names = {}
        for partition, progress in group.items():
            topic = cluster.metadata.topics[partition.topic]
            names[topic.topic_id] = partition.topic
            epoch = topic.partitions[partition.partition].leader_epoch
            targets.append(
                FetchTarget(
                    partition, progress.position, topic.topic_id, epoch, bytes_max=self._bytes_max(progress, group)
                )
            )
        request, max_version = build_fetch(targets, self.limits)
        deadline = cluster.deadline(cluster.options.request_timeout_ms + self.limits.max_wait_ms)
        try:
            connection = await cluster.connection(leader, deadline)
            version = connection.choose_version(ApiKey.FETCH, max_version=max_version)
        except KafkaError as error:
            for progress in group.values():
                self._postpone(progress, error)
            return None
        return _InFlight(connection.send(request, version, deadline), group, names)

    def _bytes_max(self, progress: _Progress, group: dict[TopicPartition, _Progress]) -> int | None:
        """The limit for the rest of a range; None for the limit of the configuration.

        Only the first partition of a response has a whole batch that exceeds its limit (KIP-74). Therefore a request
        for several partitions has no smaller limits.
        """
        if self._sizes is None or len(group) > 1:
            return None
        return max(self._sizes.limit(progress.partition, progress.end - progress.position), self.limits.min_bytes)

    async def _take(self, fetch: _InFlight, todo: dict[TopicPartition, _Progress]) -> list[FetchedBatches]:
        """Handle one response: advance positions, postpone failed ranges, remove completed ones."""
        error = fetch.future.exception()
        response = None if error is not None else fetch.future.result()
        if error is None and response is not None and response.error_code:
            error = KafkaError(response.error_code)
        if error is not None or response is None:
            if not isinstance(error, KafkaError):
                raise error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            for progress in fetch.ranges.values():
                self._postpone(progress, error)
            return []
        answers = list(partitions_of(response, fetch.names))
        nothing = not any(data.records for _, data in answers)
        arrived: list[FetchedBatches] = []
        for partition, data in answers:
            if partition not in fetch.ranges:
                continue
            progress = fetch.ranges[partition]
            code = error_code(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise await self._out_of_range(progress)
            if code is not ErrorCode.NONE:
                if not note_leader_hints(self.cluster, response, partition, data.current_leader):
                    self._postpone(progress, KafkaError(code, f"Fetching {partition}: {code.message}"))
                continue
            progress.failures = 0
            batches = fetched(partition, progress.position, data)
            if batches is not None:
                self._advance(progress, batches, arrived)
            elif nothing:
                self._check_end(progress, data.high_watermark, data.last_stable_offset)
            if progress.done:
                del todo[partition]
        return arrived

    def _advance(self, progress: _Progress, batches: FetchedBatches, arrived: list[FetchedBatches]) -> None:
        position = batches.end
        if position == progress.position:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The batch at offset {position} of {progress.partition} does not fit a fetch; raise"
                " max.partition.fetch.bytes and fetch.max.bytes.",
            )
        progress.position = position
        progress.moved_at = self.cluster.now()
        arrived.append(batches)
        if self._sizes is not None:
            self._sizes.learn(batches)

    def _check_end(self, progress: _Progress, high_watermark: int, last_stable_offset: int) -> None:
        """Decide whether a range is complete when the broker returned no records at its position.

        If all offsets up to the range's end are readable, compaction has removed the remaining records.
        """
        committed = self.limits.isolation is IsolationLevel.READ_COMMITTED
        readable = last_stable_offset if committed else high_watermark
        if readable >= progress.end:
            progress.position = progress.end
        elif high_watermark >= progress.end:
            self._check_stall(
                progress,
                f"The transaction that began at offset {last_stable_offset} is open, and holds back what follows:"
                " `barnabas transactions list --state Ongoing` shows it.",
            )
        else:
            self._check_stall(progress)

    # -- failures --------------------------------------------------------------------------------------------------

    def _find_another(self, progress: _Progress, found: UUID) -> None:
        """The metadata has another topic than that of the range. The metadata may be older than the range, of a broker
        that has not read of the topic yet: TopicReplacedError is raised only if that lasts."""
        now = self.cluster.now()
        if progress.other_since is None:
            progress.other_since = now
        if now - progress.other_since >= REPLACED_AFTER_S:
            raise TopicReplacedError(progress.partition, progress.position, progress.topic_id, found)
        self._postpone(progress, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))

    def _postpone(self, progress: _Progress, error: KafkaError) -> None:
        """Retry a range later. Raises `error` if it is not retriable, RequestTimeoutError after the stall time-out."""
        if not error.retriable:
            raise error
        progress.last_error = error
        self._check_stall(progress)
        self.cluster.note_error(progress.partition, error.code)
        delay = self.cluster.options.retry_backoff.delay_ms(progress.failures, self.cluster.rng)
        progress.failures += 1
        progress.retry_at = self.cluster.now() + delay / 1000.0

    def _check_stall(self, progress: _Progress, why: str = "The end may never have been committed.") -> None:
        """Raise RequestTimeoutError, with the reason `why`, if a range has had no records for the stall time-out."""
        if self.cluster.now() - progress.moved_at > self._stall_s:
            because = f" The last error was: {progress.last_error}" if progress.last_error else ""
            raise RequestTimeoutError(
                f"{progress.partition} gave no records at offset {progress.position} for {self._stall_s:.0f} s, though"
                f" the range goes to {progress.end}. {why}{because}"
            )

    async def _wait_for_retry(self, todo: dict[TopicPartition, _Progress]) -> None:
        wake = min(progress.retry_at for progress in todo.values())
        await asyncio.sleep(max(wake - self.cluster.now(), 0.001))

    async def _out_of_range(self, progress: _Progress) -> KafkaError:
        """The OffsetOutOfRangeError, with the log's present bounds if they can be fetched."""
        bounds = []
        for timestamp in (EARLIEST, LATEST):
            found = await list_offsets(self.cluster, {progress.partition: timestamp})
            answer = found[progress.partition]
            bounds.append(-1 if isinstance(answer, KafkaError) else answer.offset)
        return OffsetOutOfRangeError(progress.partition, progress.position, *bounds)
