"""Shell: reads topics in batches until a stop condition. Used by `barnabas consume`, `kafka-console-consumer` and
`kafka-consumer-perf-test`.

With a group, the consumer subscribes and commits an offset after the records before it were written. Without a group,
the consumer assigns the partitions to itself and commits nothing; partitions that are added to a topic later are read
from their start.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from barnabas.client.consumer.consumer import AsyncConsumer, Record
from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition

RECORDS_PER_POLL_MAX: Final = 20_000
IDLE_POLL_MS: Final = 500
ENDING_POLL_MS: Final = 50


@dataclass(frozen=True, slots=True)
class Start:
    """The position at which a consumer without a group starts. `kind` is earliest, latest, offset, last or time.

    `number` is the offset for offset, the number of records before the end for last, and milliseconds since the epoch
    for time.
    """

    kind: str = "latest"
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Start:
        """Parse earliest, latest, an offset, -N, a time, or a duration before now. Raises ValueError that lists these
        forms.
        """
        from barnabas.client.admin.offset_resets import ResetTarget

        if re.fullmatch(r"-\d+", text):
            return cls("last", int(text[1:]))
        target = ResetTarget.parse(text)
        if target.kind not in ("earliest", "latest", "offset", "time"):
            raise ValueError(f"{text!r} is not a start position: write earliest, latest, an offset, -N, a time or PT1H")
        return cls(target.kind, target.number)


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """Which partitions to read, where to start, and when to stop."""

    topic: str | None = None
    include: re.Pattern[str] | None = None
    """The pattern of the topics to read, which their whole names match, instead of `topic`; None to read `topic`."""
    partitions: tuple[int, ...] = ()
    """The partitions to read. An empty tuple means all partitions."""
    start: Start = Start()
    group: bool = False
    until_end: bool = False
    """Stop at the end offsets that the partitions had when reading began."""
    records_max: int | None = None
    idle_ms: float | None = None
    """Stop if no record arrives for this long."""
    wait_for_topic: bool = False


@dataclass(slots=True)
class ConsumeProgress:
    """The counts of records and bytes so far, and the reason why reading ended. Updated while reading continues."""

    records: int = 0
    bytes: int = 0
    skipped: int = 0
    ended_by: str = "end"
    """The reason of the end: end, max, idle, interrupted, or pipe (the reader of standard output closed it)."""


class Sink(Protocol):
    """Where `consume` writes the records."""

    def write(self, records: list[Record]) -> int:
        """Write all records and return the number of bytes written. Raises BrokenPipeError if the output was closed."""


async def consume(
    settings: Mapping[str, object],
    plan: ConsumePlan,
    sink: Sink,
    *,
    on_progress: Callable[[ConsumeProgress], None] | None = None,
    listener: RebalanceListener | None = None,
) -> ConsumeProgress:
    """Read records as `plan` says and write them to `sink`. After Ctrl-C or SIGTERM, exactly the offsets of the written
    records are committed.
    """
    outcome = ConsumeProgress()
    task = asyncio.current_task()
    assert task is not None
    # signal handlers work in the main thread on Unix only
    with suppress(ValueError, RuntimeError, NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncConsumer(settings) as consumer:
        await consumer.cluster.reach()
        reading = _Reading(consumer, plan, sink, outcome, on_progress or (lambda _: None))
        try:
            await reading.begin(listener)
            await reading.run()
        except asyncio.CancelledError:
            outcome.ended_by = "interrupted"
            task.uncancel()  # closing commits offsets and leaves the group; the cancellation must not interrupt that
    return outcome


class _Reading:
    """One run of `consume`."""

    def __init__(
        self,
        consumer: AsyncConsumer,
        plan: ConsumePlan,
        sink: Sink,
        outcome: ConsumeProgress,
        on_progress: Callable[[ConsumeProgress], None],
    ) -> None:
        self._consumer = consumer
        self._plan = plan
        self._sink = sink
        self._outcome = outcome
        self._on_progress = on_progress
        self._topics: tuple[str, ...] = ()
        self._ends: dict[TopicPartition, int] = {}
        """The end offset of each partition when reading began, if the plan ends there (`until_end`)."""

    # -- begin -----------------------------------------------------------------------------------------------------

    async def begin(self, listener: RebalanceListener | None) -> None:
        plan, consumer = self._plan, self._consumer
        if plan.group and plan.include is not None:
            consumer.subscribe(plan.include, listener)
        elif plan.group:
            assert plan.topic is not None
            consumer.subscribe([plan.topic], listener)
        if plan.group and not plan.until_end:
            return  # the group coordinator assigns the partitions
        partitions = await self._find_partitions()
        if plan.until_end:
            self._ends = await consumer.end_offsets(partitions)
        if not plan.group:
            consumer.assign(partitions)
            await self._seek(partitions)

    async def _find_partitions(self) -> list[TopicPartition]:
        plan, cluster = self._plan, self._consumer.cluster
        if plan.include is not None:
            names = [name for name in await cluster.all_topics() if plan.include.fullmatch(name)]
            self._topics = tuple(sorted(name for name in names if name not in INTERNAL_TOPICS))
        else:
            assert plan.topic is not None
            self._topics = (plan.topic,)
        found: list[TopicPartition] = []
        for topic in self._topics:
            view = await self._topic_view(topic)
            known = [p.topic_partition for p in view.partitions]
            wanted = [TopicPartition(topic, number) for number in plan.partitions] or known
            for partition in wanted:
                if partition not in known:
                    reason = f"{partition} does not exist: {topic} has {len(known)} partition(s), counted from 0"
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            found += wanted
        return found

    async def _topic_view(self, topic: str) -> Any:
        while True:
            try:
                return await self._consumer.cluster.topic(topic, allow_auto_create=self._plan.wait_for_topic)
            except KafkaError as error:
                if not self._plan.wait_for_topic or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

    async def _seek(self, partitions: list[TopicPartition]) -> None:
        start, consumer = self._plan.start, self._consumer
        match start.kind:
            case "earliest":
                consumer.seek_to_beginning(*partitions)
            case "latest":
                consumer.seek_to_end(*partitions)
            case "time":
                await consumer.seek_to_timestamp(start.number, *partitions)
            case _:
                starts = await consumer.beginning_offsets(partitions)
                ends = await consumer.end_offsets(partitions)
                for p in partitions:
                    wanted = start.number if start.kind == "offset" else ends[p] - start.number
                    consumer.seek(p, min(max(wanted, starts[p]), ends[p]))

    # -- run -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        plan, consumer, outcome = self._plan, self._consumer, self._outcome
        if plan.until_end and await self._reached_ends():
            return
        heard_at = consumer.cluster.now()
        wait_ms: float = ENDING_POLL_MS if plan.until_end else IDLE_POLL_MS
        while True:
            left = RECORDS_PER_POLL_MAX if plan.records_max is None else plan.records_max - outcome.records
            if left <= 0:
                outcome.ended_by = "max"
                return
            records = await consumer.poll(wait_ms, max_records=min(left, RECORDS_PER_POLL_MAX))
            if records:
                heard_at = consumer.cluster.now()
                if not await self._write(records):
                    outcome.ended_by = "pipe"
                    return
            else:
                self._on_progress(outcome)
                quiet_ms = (consumer.cluster.now() - heard_at) * 1000
                if plan.idle_ms is not None and quiet_ms >= plan.idle_ms:
                    outcome.ended_by = "idle"
                    return
                await self._follow_new_partitions()
            if plan.until_end and await self._reached_ends():
                return
            if plan.idle_ms is not None:
                wait_ms = min(wait_ms, max(plan.idle_ms / 4, 1))

    async def _write(self, records: list[Record]) -> bool:
        """Write the records. Returns False if the output was closed; the records that were not written are then not
        committed.
        """
        kept = self._before_ends(records) if self._plan.until_end else records
        if not kept:
            return True
        try:
            if self._plan.group:
                await self._write_in_thread(kept)
            else:
                self._count(kept, self._sink.write(kept))
        except BrokenPipeError:
            for record in reversed(records):
                if record.topic_partition in self._consumer.assignment():
                    self._consumer.seek(record.topic_partition, record.offset)
            return False
        await asyncio.sleep(0)  # lets other tasks of the event loop run even if records arrive without a pause
        return True

    async def _write_in_thread(self, records: list[Record]) -> None:
        """Write in a thread, so that a slow reader of standard output does not delay heartbeats. Ctrl-C waits for a
        write in progress.
        """
        writing = asyncio.get_running_loop().run_in_executor(None, self._sink.write, records)
        try:
            await asyncio.shield(writing)
        finally:
            self._count(records, await writing)

    def _count(self, records: list[Record], size: int) -> None:
        self._outcome.records += len(records)
        self._outcome.bytes += size
        self._on_progress(self._outcome)

    def _before_ends(self, records: list[Record]) -> list[Record]:
        """The records before the end offsets. A partition that has passed its end offset is sought back to that offset
        and paused.
        """
        ends, consumer = self._ends, self._consumer
        kept = []
        for record in records:
            partition = record.topic_partition
            if record.offset < ends.get(partition, 0):
                kept.append(record)
            elif partition in consumer.assignment() and partition not in consumer.paused():
                consumer.seek(partition, ends.get(partition, 0))
                consumer.pause(partition)
        return kept

    async def _reached_ends(self) -> bool:
        consumer = self._consumer
        assigned = consumer.assignment()
        if self._plan.group and not assigned:
            return not any(self._ends.values())
        for partition in assigned - consumer.paused():
            end = self._ends.get(partition, 0)
            if end and await consumer.position(partition) < end:
                return False
        return True

    async def _follow_new_partitions(self) -> None:
        plan, consumer = self._plan, self._consumer
        if plan.group or plan.partitions or plan.until_end:
            return
        assigned = consumer.assignment()
        views = consumer.cluster.metadata.topics
        every = {p.topic_partition for t in self._topics if t in views for p in views[t].partitions}
        if added := sorted(every - assigned):
            consumer.assign(sorted(assigned | set(added)))
            consumer.seek_to_beginning(*added)


def reset_policy(start: Start) -> str:
    """`auto.offset.reset` for a plan: where a group without committed offsets starts, and the position after
    OFFSET_OUT_OF_RANGE.
    """
    return "latest" if start.kind == "latest" else "earliest"
