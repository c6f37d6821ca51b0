"""A copier without Spark, for tests of everything around it: reads with a consumer, writes with a producer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from barnabas.client import AsyncConsumer, AsyncProducer
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.ports import CopiedRange, CopiedRanges, CopyPlan, OffsetRun
from barnabas.spark.mirror.records import SourceOffset, encode_source_offset

_POLL_MS = 50


class PlainCopier:
    """A `RecordCopier` on a thread of its own; each poll is a micro-batch."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self.plans: list[CopyPlan] = []

    def start(self, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        assert self._thread is None
        self.plans.append(plan)
        self._stopping.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(plan, on_copied), name=f"copier {plan.name}")
        self._thread.start()

    def failure(self) -> Exception | None:
        return self._failure

    def fail(self, error: Exception) -> None:
        """Let the running copier report this error."""
        self._failure = error

    def stop(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._stopping.set()
            self._thread.join(timeout_s)
            self._thread = None

    def _run(self, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        try:
            asyncio.run(self._copy(plan, on_copied))
        except Exception as error:  # noqa: BLE001 - whatever it is, the runner learns of it by `failure`
            self._failure = error

    async def _copy(self, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        batch_id = 0
        async with AsyncConsumer(plan.source_settings) as consumer, AsyncProducer(plan.target_settings) as producer:
            partitions = [tp for topic in plan.topics for tp in await consumer.partitions_for(topic)]
            consumer.assign(partitions)
            for tp in partitions:
                if tp in plan.positions:
                    consumer.seek(tp, plan.positions[tp])
            while not self._stopping.is_set():
                ranges = await self._copy_once(plan, consumer, producer)
                if ranges:
                    on_copied(CopiedRanges(batch_id, time.time_ns() // 1_000_000, ranges))
                    batch_id += 1

    async def _copy_once(
        self, plan: CopyPlan, consumer: AsyncConsumer[bytes, bytes], producer: AsyncProducer
    ) -> list[CopiedRange]:
        runs: dict[TopicPartition, list[OffsetRun]] = {}
        newest: dict[TopicPartition, int] = {}
        sizes: dict[TopicPartition, int] = {}
        for record in await consumer.poll(timeout_ms=_POLL_MS):
            tp = record.topic_partition
            written = await producer.send_and_wait(
                plan.topics[record.topic],
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp,
                headers=record.headers,
            )
            _extend(runs.setdefault(tp, []), record.offset, written.offset)
            newest[tp] = max(newest.get(tp, -1), record.timestamp)
            sizes[tp] = sizes.get(tp, 0) + len(record.key or b"") + len(record.value or b"")
        found = []
        for tp, copied in runs.items():
            last = copied[-1].last_upstream
            key, value = encode_source_offset(SourceOffset(plan.source_alias, tp, last))
            await producer.send_and_wait(plan.offsets_topic, value, key=key)
            count = sum(run.count for run in copied)
            end = last + 1 + (consumer.lag(tp) or 0)
            found.append(CopiedRange(tp, copied, last + 1, count, sizes[tp], newest[tp], end))
        return found


def _extend(runs: list[OffsetRun], upstream: int, downstream: int) -> None:
    if runs and (upstream, downstream) == (runs[-1].last_upstream + 1, runs[-1].last_downstream + 1):
        runs[-1] = OffsetRun(runs[-1].upstream, runs[-1].downstream, runs[-1].count + 1)
    else:
        runs.append(OffsetRun(upstream, downstream, 1))
