"""Shell: the log cleaner: chooses the logs to compact and keeps the results (Kafka's LogCleaner, LogCleanerManager).

Each of `log.cleaner.threads` tasks repeatedly compacts the dirtiest log that is due. If no log is due, the task sleeps
for `log.cleaner.backoff.ms`. A failed pass is logged and retried after a backoff that doubles; the other logs are
cleaned meanwhile. `status` returns the results of a partition's passes.
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
from barnabas.server.storage.errors import StorageError, TransientStorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.cleaner")

_YIELD_EVERY: Final = 64
_RETRY_MIN_MS: Final = 60_000
_RETRY_MAX_MS: Final = 3_600_000
_IDLE_MS: Final = 60_000
"""The cleaner process is stopped after this time without a pass."""


class CleaningFailure(Struct, frozen=True):
    """Why the last pass over a partition failed, and when the next one may begin."""

    reason: str
    since_ms: int
    count: int
    retry_ms: int


class LastPass(Struct, frozen=True):
    """The last completed pass over a partition since this broker started."""

    ended_ms: int
    done: PassDone


class CleanerStatus(Struct, frozen=True):
    """The state of the cleaner for one partition."""

    enabled: bool
    running: bool
    last_pass: LastPass | None
    failure: CleaningFailure | None


class Compactor:
    """The log cleaner of one broker."""

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
        self._on_demand = asyncio.Lock()
        self._last_run_ms = clock.now_ms()
        counter, gauge = metrics.counter, metrics.gauge
        self._passes = counter("barnabas_log_cleaner_passes_total", "Completed cleaning passes.")
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
            "Time since the cleaner last searched for a log that is due.",
            lambda: (self._clock.now_ms() - self._last_run_ms) / 1000,
        )

    # --- the loop

    async def run(self) -> None:
        """Compact logs until cancelled."""
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
        """The dirtiest partition that is due. Partitions that exceed max.compaction.lag.ms come first."""
        now_ms = self._last_run_ms = self._clock.now_ms()
        self._forget_removed()
        best: tuple[tuple[bool, float], Partition, CleanableLog] | None = None
        dirtiest = 0.0
        for count, partition in enumerate(list(self._partitions)):
            if count % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if partition.log is None or not partition.log.config.compact or partition.log.failed:
                continue
            found = self._assess(partition, partition.log, now_ms)
            dirtiest = max(dirtiest, found.dirty_ratio)
            if (
                not found.verdict.due
                or partition.log.cleaning is not None
                or self._is_backing_off(partition.name, now_ms)
            ):
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

    def _is_backing_off(self, name: TopicPartition, now_ms: int) -> bool:
        failure = self._failures.get(name)
        return failure is not None and now_ms < failure.retry_ms

    def _forget_removed(self) -> None:
        for name in [n for n in self._failures if self._partitions.get(n.topic, n.partition) is None]:
            del self._failures[name]
            self._metrics.forget(topic=name.topic, partition=str(name.partition))
        for name in [n for n in self._last if self._partitions.get(n.topic, n.partition) is None]:
            del self._last[name]

    # --- one pass

    async def compact(self, name: TopicPartition) -> PassDone | None:
        """Compact one partition now, even if its log is not dirty enough. Expired tombstones are removed too.

        Returns the result of the pass, or None if another pass is in progress or the log cannot be compacted. Passes on
        demand run one after another, so that only one uses memory at a time. Raises KafkaError if the pass fails.
        """
        async with self._on_demand:
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
            log.info("cleaning aborted", partition=str(partition.name), reason=str(aborted))
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
        except BaseException as error:  # cancellation, too: the log must not wait for the end of this pass
            was_aborted = job.aborted
            engine.stop()
            job.abort()
            job.remove_leftovers()
            if was_aborted and isinstance(error, KafkaError) and not isinstance(error, CleaningAbortedError):
                raise CleaningAbortedError(f"the log of {partition.name} changed while it was being cleaned") from error
            raise
        directory = self._partitions.log_dir_of(partition)
        if directory is not None and directory.failure is None:
            directory.checkpoint_cleaned()
        return step

    # --- results

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
            "Time of the first failed cleaning pass of the partition (Unix time).",
            topic=name.topic,
            partition=str(name.partition),
        ).set(since / 1000)
        log.error(
            "log could not be cleaned; the pass is retried",
            partition=str(name),
            reason=str(error),
            disk=isinstance(error, StorageError) and not isinstance(error, TransientStorageError),
            attempts=count,
            retry_in_seconds=pause // 1000,
        )

    def status(self, name: TopicPartition) -> CleanerStatus:
        """The results of the partition's last passes, and whether a pass is in progress.

        Raises KafkaError as `Partitions.require` does.
        """
        partition = self._partitions.require(name.topic, name.partition)
        running = partition.log is not None and partition.log.cleaning is not None
        return CleanerStatus(self._config().log_cleaner_enable, running, self._last.get(name), self._failures.get(name))

    @property
    def failures(self) -> dict[TopicPartition, CleaningFailure]:
        """The failures of the partitions whose last pass failed."""
        return dict(self._failures)
