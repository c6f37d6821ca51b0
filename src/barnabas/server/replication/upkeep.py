"""Shell: what must be done to the logs now and then: retention, flushing, checkpoints, deletion, expiry.

Each chore has Kafka's interval and Kafka's setting. One that fails is reported and tried again next time; a disk that
fails takes its own directory offline and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions

log = get_logger("barnabas.server.replication")

_YIELD_EVERY = 64
"""Partitions looked at before other work gets a turn on the loop."""


class UpkeepIntervals(Struct, frozen=True):
    """In milliseconds; the comments are the settings."""

    initial_delay_ms: int = 30_000  # log.initial.task.delay.ms
    retention_ms: int = 300_000  # log.retention.check.interval.ms
    watermark_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    recovery_point_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    log_start_ms: int = 60_000  # log.flush.start.offset.checkpoint.interval.ms
    producer_expiry_ms: int = 600_000  # producer.id.expiration.check.interval.ms
    flush_check_ms: int = 1_000  # how often flush.ms is looked at
    deletion_ms: int = 10_000  # how often file.delete.delay.ms is looked at


class Upkeep:
    """The chores of one node. `run` until cancelled."""

    def __init__(
        self, partitions: Partitions, flusher: Flusher, disk: Executor, clock: Clock, intervals: UpkeepIntervals
    ) -> None:
        self._partitions = partitions
        self._flusher = flusher
        self._disk = disk
        self._clock = clock
        self._intervals = intervals

    async def run(self) -> None:
        every = self._intervals
        async with asyncio.TaskGroup() as chores:
            for interval_ms, chore in (
                (every.retention_ms, self.retain),
                (every.watermark_ms, self.checkpoint_watermarks),
                (every.recovery_point_ms, self.checkpoint_recovery_points),
                (every.log_start_ms, self.checkpoint_log_starts),
                (every.producer_expiry_ms, self.expire_producers),
                (every.flush_check_ms, self.flush_what_is_due),
                (every.deletion_ms, self.delete_files),
            ):
                chores.create_task(self._repeat(interval_ms, chore))

    async def _repeat(self, interval_ms: int, chore: Callable[[], object]) -> None:
        await asyncio.sleep(min(interval_ms, self._intervals.initial_delay_ms) / 1000)
        while True:
            try:
                outcome = chore()
                if asyncio.iscoroutine(outcome):
                    await outcome
            except KafkaError as error:
                log.error("a chore failed", chore=chore.__name__, reason=str(error))
            await asyncio.sleep(interval_ms / 1000)

    @property
    def intervals(self) -> UpkeepIntervals:
        return self._intervals

    async def retain(self) -> None:
        """Delete segments beyond retention.ms, retention.bytes or the log start offset."""
        now_ms = self._clock.now_ms()
        for count, partition in enumerate(list(self._partitions)):
            retain_one(partition, now_ms)
            if count % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def checkpoint_watermarks(self) -> None:
        self._partitions.checkpoint_high_watermarks()

    def checkpoint_recovery_points(self) -> None:
        for directory in self._partitions.log_dirs:
            if directory.failure is None:
                directory.checkpoint_recovery_points()

    def checkpoint_log_starts(self) -> None:
        for directory in self._partitions.log_dirs:
            if directory.failure is None:
                directory.checkpoint_log_starts()

    def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            if partition.log is not None:
                partition.log.expire_producers(now_ms)

    def flush_what_is_due(self) -> None:
        """flush.ms: fsync what has waited long enough."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            if partition.log is not None and partition.log.flush_due(now_ms):
                self._flusher.request(partition.log)

    async def delete_files(self) -> None:
        """Unlink what was renamed for deletion file.delete.delay.ms ago."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            if partition.log is not None:
                partition.log.delete_pending_files(now_ms)
        for directory in self._partitions.log_dirs:
            if directory.failure is None:
                await asyncio.get_running_loop().run_in_executor(self._disk, directory.delete_pending, now_ms)


def retain_one(partition: Partition, now_ms: int) -> int:
    """Retention for one partition: how many segments were deleted. None while it is cleaned: that would call it off."""
    target = partition.log
    if target is None or target.cleaning is not None:
        return 0
    deleted = target.delete_old_segments(now_ms, partition.high_watermark)
    if deleted:
        log.info("segments deleted", partition=str(partition.name), segments=deleted)
    return deleted
