"""Shell: which log is cleaned when, and what came of it (Kafka's LogCleaner and LogCleanerManager).

Each of `log.cleaner.threads` tasks takes the dirtiest log that is due, cleans it and looks again; with nothing due it
sleeps for `log.cleaner.backoff.ms`. A log that cannot be cleaned is reported, left alone for a while that grows, and
tried again; the others go on. `facts` tells of every partition what came of its passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.rng import Rng
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.server.replication.cleaning.engine import CleanerEngine
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.storage.cleaner.cleanable import CleanableLog, CleaningVerdict, assess
from barnabas.server.storage.cleaner.errors import CleaningAbortedError
from barnabas.server.storage.cleaner.job import plan_cleaning
from barnabas.server.storage.cleaner.task import CleanerConfig, PassDone
from barnabas.server.storage.errors import DiskFullError, StorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.cleaner")

_YIELD_EVERY: Final = 64
_RETRY_MIN_MS: Final = 60_000
_RETRY_MAX_MS: Final = 3_600_000
_IDLE_MS: Final = 60_000
"""After so long without work the cleaner's process goes."""


class CleaningFailure(Struct, frozen=True):
    """Why the last pass over a partition failed, and when the next one may begin."""

    reason: str
    since_ms: int
    count: int
    retry_ms: int


class LastPass(Struct, frozen=True):
    """The last pass over a partition that came to its end, since this node started."""

    ended_ms: int
    done: PassDone


class CleanerStatus(Struct, frozen=True):
    """What the cleaner has to do with one partition."""

    enabled: bool
    running: bool
    last_pass: LastPass | None
    failure: CleaningFailure | None


class Compactor:
    """The cleaner of one node. `run` until cancelled."""

    def __init__(
        self,
        partitions: Partitions,
        config: Callable[[], CleanerConfig],
        new_engine: Callable[[], CleanerEngine],
        executor: Executor,
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._config = config
        self._new_engine = new_engine
        self._executor = executor
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._failures: dict[TopicPartition, CleaningFailure] = {}
        self._last: dict[TopicPartition, LastPass] = {}
        self._asked = asyncio.Lock()
        self._last_run_ms = clock.now_ms()
        counter, gauge = metrics.counter, metrics.gauge
        self._passes = counter("barnabas_log_cleaner_passes_total", "Cleaning passes that came to their end.")
        self._failed = counter("barnabas_log_cleaner_failures_total", "Cleaning passes that failed.")
        self._read = counter("barnabas_log_cleaner_read_bytes_total", "Bytes read by the cleaner.")
        self._written = counter("barnabas_log_cleaner_written_bytes_total", "Bytes written by the cleaner.")
        self._removed = counter("barnabas_log_cleaner_records_removed_total", "Records that compaction removed.")
        self._seconds = counter("barnabas_log_cleaner_seconds_total", "Time spent cleaning.")
        self._dirtiest = gauge("barnabas_log_cleaner_max_dirty_ratio", "The dirty ratio of the dirtiest log.")
        self._buffer = gauge("barnabas_log_cleaner_buffer_utilization", "How full the last pass made its map of keys.")
        gauge(
            "barnabas_log_cleaner_uncleanable_partitions",
            "Partitions whose last cleaning pass failed.",
            lambda: len(self._failures),
        )
        gauge(
            "barnabas_log_cleaner_since_last_run_seconds",
            "Since the cleaner last looked for work.",
            lambda: (self._clock.now_ms() - self._last_run_ms) / 1000,
        )

    # --- the loop

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(max(self._config().log_cleaner_threads, 1)):
                tasks.create_task(self._work(), name="cleaner")

    async def _work(self) -> None:
        engine = self._new_engine()
        idle_since_ms = self._clock.now_ms()
        try:
            while True:
                config = self._config()
                chosen = await self._choose() if config.log_cleaner_enable and config.log_cleaner_threads > 0 else None
                if chosen is None:
                    if self._clock.now_ms() - idle_since_ms >= _IDLE_MS:
                        engine.stop()
                    await asyncio.sleep(max(config.log_cleaner_backoff_ms, 10) / 1000)
                    continue
                await self._clean(chosen[0], chosen[1], engine)
                idle_since_ms = self._clock.now_ms()
        finally:
            engine.stop()

    async def _choose(self) -> tuple[Partition, CleanableLog] | None:
        """The dirtiest partition that is due; one whose lag is exceeded goes first."""
        now_ms = self._last_run_ms = self._clock.now_ms()
        self._forget_gone()
        best: tuple[tuple[bool, float], Partition, CleanableLog] | None = None
        dirtiest = 0.0
        for count, partition in enumerate(list(self._partitions)):
            if count % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if partition.log is None or not partition.log.config.compact or partition.log.failed:
                continue
            found = self._assess(partition, partition.log, now_ms)
            dirtiest = max(dirtiest, found.dirty_ratio)
            if not found.verdict.due or partition.log.cleaning is not None or self._resting(partition.name, now_ms):
                continue
            rank = (found.verdict is CleaningVerdict.LAG_EXCEEDED, found.dirty_ratio)
            if best is None or rank > best[0]:
                best = (rank, partition, found)
        self._dirtiest.set(dirtiest)
        return None if best is None else best[1:]

    def _assess(self, partition: Partition, target: Log, now_ms: int) -> CleanableLog:
        try:
            return assess(target, partition.high_watermark, now_ms)
        except KafkaError as error:
            self._report(partition.name, error)
            return CleanableLog(CleaningVerdict.OFFLINE, detail=str(error))

    def _resting(self, name: TopicPartition, now_ms: int) -> bool:
        failure = self._failures.get(name)
        return failure is not None and now_ms < failure.retry_ms

    def _forget_gone(self) -> None:
        for name in [n for n in self._failures if self._partitions.get(n.topic, n.partition) is None]:
            del self._failures[name]
            self._metrics.forget(topic=name.topic, partition=str(name.partition))
        for name in [n for n in self._last if self._partitions.get(n.topic, n.partition) is None]:
            del self._last[name]

    # --- one pass

    async def compact(self, name: TopicPartition) -> PassDone | None:
        """A pass at once, dirty enough or not (expired tombstones go, too); None if one is under way or none can be.

        Passes that are asked for run one after the other, so that they take the memory of one. Raises KafkaError when
        it fails.
        """
        async with self._asked:
            partition = self._partitions.require(name.topic, name.partition)
            if partition.log is None or partition.log.cleaning is not None:
                return None
            found = assess(partition.log, partition.high_watermark, self._clock.now_ms())
            if not found.verdict.possible:
                return None
            engine = self._new_engine()
            try:
                done = await self._pass(partition, partition.log, found, engine)
            finally:
                engine.stop()
            self._settle(name, done)
            return done

    async def _clean(self, partition: Partition, found: CleanableLog, engine: CleanerEngine) -> None:
        target = partition.log
        if target is None or target.cleaning is not None or target.failed:
            return
        try:
            done = await self._pass(partition, target, found, engine)
        except CleaningAbortedError as aborted:
            log.info("cleaning called off", partition=str(partition.name), reason=str(aborted))
        except KafkaError as error:
            engine.stop()
            self._report(partition.name, error)
        else:
            self._settle(partition.name, done)

    async def _pass(self, partition: Partition, target: Log, found: CleanableLog, engine: CleanerEngine) -> PassDone:
        loop = asyncio.get_running_loop()
        secret = (self._rng.getrandbits(64), self._rng.getrandbits(64))
        config = self._config().per_thread
        job = plan_cleaning(target, found, now_ms=self._clock.now_ms(), secret=secret, config=config)
        try:
            await loop.run_in_executor(self._executor, engine.begin, job.task)
            while True:
                step = await loop.run_in_executor(self._executor, engine.next)
                job.check()
                if isinstance(step, PassDone):
                    break
                if step.changed:
                    await loop.run_in_executor(self._executor, job.stage, step)
                    job.adopt(step, now_ms=self._clock.now_ms())
                    await loop.run_in_executor(self._executor, job.settle)
            job.finish(step.end_offset)
        except BaseException as error:
            called_off = job.aborted
            engine.stop()
            job.abort()
            job.remove_leftovers()
            if called_off and isinstance(error, KafkaError) and not isinstance(error, CleaningAbortedError):
                raise CleaningAbortedError(f"the log of {partition.name} changed while it was being cleaned") from error
            raise
        directory = self._partitions.log_dir_of(partition)
        if directory is not None and directory.failure is None:
            directory.checkpoint_cleaned()
        return step

    # --- what came of it

    def _settle(self, name: TopicPartition, done: PassDone) -> None:
        stats = done.stats
        if self._failures.pop(name, None) is not None:
            self._metrics.forget(topic=name.topic, partition=str(name.partition))
        self._last[name] = LastPass(self._clock.now_ms(), done)
        self._passes.add()
        self._read.add(stats.map_bytes_read + stats.bytes_read)
        self._written.add(stats.bytes_written)
        self._removed.add(stats.records_read - stats.records_kept)
        self._seconds.add(stats.seconds)
        self._buffer.set(stats.map_utilization)
        log.info(
            "log cleaned",
            partition=str(name),
            up_to=done.end_offset,
            records_before=stats.records_read,
            records_after=stats.records_kept,
            bytes_before=stats.bytes_read,
            bytes_after=stats.bytes_written,
            seconds=round(stats.seconds, 3),
        )

    def _report(self, name: TopicPartition, error: KafkaError) -> None:
        now_ms = self._clock.now_ms()
        before = self._failures.get(name)
        count = 1 if before is None else before.count + 1
        pause = min(_RETRY_MIN_MS << min(count - 1, 10), _RETRY_MAX_MS)
        since = now_ms if before is None else before.since_ms
        self._failures[name] = CleaningFailure(str(error), since, count, now_ms + pause)
        self._failed.add()
        self._metrics.gauge(
            "barnabas_log_cleaner_uncleanable_since_seconds",
            "When the partition's cleaning began to fail (Unix time).",
            topic=name.topic,
            partition=str(name.partition),
        ).set(since / 1000)
        log.error(
            "log could not be cleaned; the others go on",
            partition=str(name),
            reason=str(error),
            disk=isinstance(error, StorageError) and not isinstance(error, DiskFullError),
            attempts=count,
            retry_in_seconds=pause // 1000,
        )

    def facts(self, name: TopicPartition) -> CleanerStatus:
        """What came of the partition's last passes, and whether one is under way.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self._partitions.require(name.topic, name.partition)
        running = partition.log is not None and partition.log.cleaning is not None
        return CleanerStatus(self._config().log_cleaner_enable, running, self._last.get(name), self._failures.get(name))

    @property
    def failures(self) -> dict[TopicPartition, CleaningFailure]:
        """The partitions whose last pass failed."""
        return dict(self._failures)
