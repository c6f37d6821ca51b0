"""Shell: reads the records of a topic for one page, download or live view, and stops at the first limit.

The reader assigns partitions to a consumer without a group, so that nothing is committed and no group rebalances.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.client import AsyncConsumer
from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.values import EARLIEST, LATEST, ConsumerRecord
from barnabas.console.browse.query import BrowseQuery
from barnabas.console.browse.records import RecordView, Viewer, newest_of
from barnabas.console.errors import BadInputError, NotFoundError
from barnabas.console.settings import BrowseLimits
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition

POLL_MS: Final = 250
_ALL: Final = 1 << 60
_WINDOW_RECORDS: Final = 5_000
"""The most records of one window of `newest`, in all partitions at first and in each partition later."""
_POLL_RECORDS: Final = 500
_NO_MORE: Final = "end"


@dataclass(slots=True)
class Span:
    """The offsets to read of one partition: from `position` to before `end`."""

    log_start: int
    position: int
    end: int


@dataclass(slots=True)
class ReadProgress:
    """What a read has cost, and why it stopped: end, records, scanned, bytes or seconds."""

    spans: dict[TopicPartition, Span] = field(default_factory=dict)
    found: int = 0
    scanned: int = 0
    scanned_bytes: int = 0
    stopped: str = ""

    def next_positions(self) -> dict[int, int]:
        return {p.partition: span.position for p, span in self.spans.items()}


class BrowseReader:
    """Reads topics through the cluster of the admin client."""

    def __init__(self, admin: AsyncAdmin, limits: BrowseLimits) -> None:
        self._admin = admin
        self._limits = limits

    async def read(
        self, topic: str, query: BrowseQuery, viewer: Viewer, progress: ReadProgress, *, limit: int
    ) -> AsyncIterator[RecordView]:
        """Yield matching records, in order within a partition. `progress` is up to date after each record."""
        spans = await self._spans(topic, query)
        deadline = self._admin.cluster.now() + self._limits.seconds
        async for view in self._read_spans(spans, query, viewer, progress, limit=limit, deadline=deadline):
            yield view

    async def newest(
        self, topic: str, query: BrowseQuery, viewer: Viewer, progress: ReadProgress
    ) -> tuple[list[RecordView], dict[int, int]]:
        """The newest matching records, newest first, and the offsets before which the next older ones are (empty if
        there are none). Reads backwards in windows that become larger while a search finds too little.
        """
        spans = await self._spans(topic, query)
        deadline = self._admin.cluster.now() + self._limits.seconds
        each = max(1, min(query.limit, _WINDOW_RECORDS // max(len(spans), 1)))
        found: list[RecordView] = []
        ends = {partition: span.end for partition, span in spans.items()}
        while len(found) < query.limit and any(ends[p] > span.log_start for p, span in spans.items()):
            window = {
                p: Span(span.log_start, max(ends[p] - each, span.log_start), ends[p]) for p, span in spans.items()
            }
            begins = {p: span.position for p, span in window.items()}
            reading = self._read_spans(window, query, viewer, progress, limit=_ALL, deadline=deadline)
            views = [view async for view in reading]
            if progress.stopped != _NO_MORE:
                found = found or views  # the newest records of this window were not read; the next page reads it again
                break
            found, ends = views + found, begins
            each = min(each * 4, _WINDOW_RECORDS)
        newest, dropped = newest_of(found, query.limit)
        kept = {p: min((v.offset for v in newest if v.partition == p.partition), default=ends[p]) for p in spans}
        older = {
            p.partition: (max(dropped[p.partition] + 1, 0) if p.partition in dropped else min(kept[p], ends[p]))
            for p in spans
        }
        is_more = bool(dropped) or any(older[p.partition] > span.log_start for p, span in spans.items())
        return newest, older if is_more else {}

    async def _read_spans(
        self,
        spans: Mapping[TopicPartition, Span],
        query: BrowseQuery,
        viewer: Viewer,
        progress: ReadProgress,
        *,
        limit: int,
        deadline: float,
    ) -> AsyncIterator[RecordView]:
        progress.spans.update(spans)
        todo = {p for p, span in progress.spans.items() if span.position < span.end}
        if not todo:
            progress.stopped = _NO_MORE
            return
        async with self._consumer(query) as consumer:
            consumer.assign(sorted(todo))
            for partition in todo:
                consumer.seek(partition, progress.spans[partition].position)
            while todo:
                records = await consumer.poll(POLL_MS, max_records=_POLL_RECORDS)
                for record in records:
                    span, partition = progress.spans[record.topic_partition], record.topic_partition
                    if partition not in todo:
                        continue
                    if self._limit_reached(progress, limit):
                        return
                    if record.offset < span.end and (view := await self._take(record, query, viewer, progress)):
                        yield view
                    if max(record.offset + 1, span.position) >= span.end:
                        span.position = span.end
                        todo.discard(partition)
                        consumer.pause(partition)
                if self._limit_reached(progress, limit):
                    return
                if self._admin.cluster.now() >= deadline:
                    progress.stopped = "seconds"
                    return
                for partition in sorted(todo):  # a transaction's marker at the end gives no record
                    if not records and await consumer.position(partition) >= progress.spans[partition].end:
                        progress.spans[partition].position = progress.spans[partition].end
                        todo.discard(partition)
        progress.stopped = _NO_MORE

    async def tail(self, topic: str, query: BrowseQuery, viewer: Viewer) -> AsyncIterator[list[RecordView]]:
        """Yield the new records as they arrive; an empty list after each second without one."""
        partitions = await self._partitions(topic, query)
        ends = await self._offsets(partitions, LATEST, query)
        async with self._consumer(query) as consumer:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, ends[partition])
            yield []  # from now on, every new record is seen
            while True:
                records = await consumer.poll(1_000, max_records=_POLL_RECORDS)
                views = [await viewer.view(record, query) for record in records]
                yield [view for view in views if view is not None]

    async def _take(
        self, record: ConsumerRecord[bytes, bytes], query: BrowseQuery, viewer: Viewer, progress: ReadProgress
    ) -> RecordView | None:
        progress.spans[record.topic_partition].position = record.offset + 1
        progress.scanned += 1
        progress.scanned_bytes += len(record.key or b"") + len(record.value or b"")
        view = await viewer.view(record, query)
        if progress.scanned % 100 == 0:
            await asyncio.sleep(0)  # other requests of the console and the broker run in the same loop
        if view is not None:
            progress.found += 1
        return view

    def _limit_reached(self, progress: ReadProgress, limit: int) -> bool:
        limits = self._limits
        for name, value, most in (
            ("records", progress.found, limit),
            ("scanned", progress.scanned, limits.scanned_records),
            ("bytes", progress.scanned_bytes, limits.scanned_bytes),
        ):
            if value >= most:
                progress.stopped = name
                return True
        return False

    def _consumer(self, query: BrowseQuery) -> AsyncConsumer:
        cluster: Cluster = self._admin.cluster
        return AsyncConsumer(
            {"isolation.level": query.isolation.name.lower()},
            cluster=cluster,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=POLL_MS,
            fetch_max_bytes=8 * 1024 * 1024,
            max_partition_fetch_bytes=1024 * 1024,
            allow_auto_create_topics=False,
        )

    # -- where to begin and to end ----------------------------------------------------------------------------------

    async def _partitions(self, topic: str, query: BrowseQuery) -> list[TopicPartition]:
        view = (await self._admin.describe_topics([topic]))[topic]
        if isinstance(view, KafkaError):
            if view.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NotFoundError(f"The topic {topic!r} does not exist.")
            raise view
        numbers = range(view.partition_count)
        if unknown := [number for number in query.partitions if number not in numbers]:
            raise BadInputError(f"{topic} has no partition {unknown[0]}: it has {view.partition_count}, from 0 on.")
        return [TopicPartition(topic, number) for number in query.partitions or numbers]

    async def _offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int, query: BrowseQuery
    ) -> dict[TopicPartition, int]:
        answers = await self._admin.list_offsets(dict.fromkeys(partitions, timestamp), isolation=query.isolation)
        offsets = {}
        for partition, answer in answers.items():
            if isinstance(answer, KafkaError):
                raise answer
            offsets[partition] = answer.offset
        return offsets

    async def _spans(self, topic: str, query: BrowseQuery) -> dict[TopicPartition, Span]:
        partitions = await self._partitions(topic, query)
        starts = await self._offsets(partitions, EARLIEST, query)
        ends = await self._offsets(partitions, LATEST, query)
        times = await self._offsets(partitions, query.time_ms, query) if query.start == "time" else {}
        spans = {}
        for partition in partitions:
            start = starts[partition]
            end = max(start, min(ends[partition], query.before.get(partition.partition, ends[partition])))
            wanted = _wanted(query, partition, start, end, times)
            spans[partition] = Span(start, min(max(wanted, start), end), end)
        return spans


def _wanted(
    query: BrowseQuery, partition: TopicPartition, start: int, end: int, times: Mapping[TopicPartition, int]
) -> int:
    """The first offset that the query asks for, not yet limited to the log."""
    match query.start:
        case "newest" | "oldest":
            return start
        case "offset":
            return query.offset
        case "time":
            return times[partition] if times[partition] >= 0 else end
        case "positions":
            return query.positions.get(partition.partition, end)
        case _:
            return end
