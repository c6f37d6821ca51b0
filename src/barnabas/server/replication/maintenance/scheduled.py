"""Shell: scheduled maintenance of the logs: retention, checkpoints, fsync by time, producer expiry, file deletion.

Each task runs at the interval of its Kafka config. A task that fails is logged and runs again at the next interval. A
disk that fails takes its own log directory offline and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions

log = get_logger("barnabas.server.replication")

_YIELD_EVERY: Final = 64
"""The number of partitions that a task handles before other tasks get a turn on the event loop."""
_FLUSH_CHECK_INTERVAL_MS: Final = 1_000
"""The interval between checks of flush.ms."""
_DELETION_INTERVAL_MS: Final = 10_000
"""The interval between checks of file.delete.delay.ms."""
_OPEN_INTERVAL_MS: Final = 1_000
"""The interval between attempts to open logs that could not be opened."""


class MaintenanceConfig(Struct, frozen=True):
    """The intervals of the tasks, by the names of their broker configs."""

    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    producer_id_expiration_check_interval_ms: int


class ScheduledMaintenance:
    """The maintenance tasks of one broker."""

    def __init__(
        self, partitions: Partitions, flusher: Flusher, disk: Executor, clock: Clock, config: MaintenanceConfig
    ) -> None:
        self.config = config
        self._partitions = partitions
        self._flusher = flusher
        self._disk = disk
        self._clock = clock

    async def run(self) -> None:
        """Run every task at its interval until cancelled."""
        config = self.config
        async with asyncio.TaskGroup() as tasks:
            for interval_ms, task in (
                (config.log_retention_check_interval_ms, self.enforce_retention),
                (config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
                (config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
                (config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_starts),
                (config.producer_id_expiration_check_interval_ms, self.expire_producers),
                (_FLUSH_CHECK_INTERVAL_MS, self.flush_by_time),
                (_DELETION_INTERVAL_MS, self.delete_files),
                (_OPEN_INTERVAL_MS, self.open_logs_again),
            ):
                tasks.create_task(self._repeat(interval_ms, task))

    async def _repeat(self, interval_ms: int, task: Callable[[], object]) -> None:
        await asyncio.sleep(min(interval_ms, self.config.log_initial_task_delay_ms) / 1000)
        while True:
            try:
                outcome = task()
                if asyncio.iscoroutine(outcome):
                    await outcome
            except KafkaError as error:
                log.error("a maintenance task failed; it runs again", task=task.__name__, reason=str(error))
            await asyncio.sleep(interval_ms / 1000)

    async def enforce_retention(self) -> None:
        """Delete the segments that exceed retention.ms or retention.bytes or end below the log start offset."""
        now_ms = self._clock.now_ms()
        for count, partition in enumerate(list(self._partitions)):
            enforce_retention(partition, now_ms)
            if count % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def checkpoint_high_watermarks(self) -> None:
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

    def flush_by_time(self) -> None:
        """Fsync the logs whose oldest unflushed record is older than flush.ms."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            if partition.log is not None and partition.log.flush_due(now_ms):
                self._flusher.request(partition.log)

    def open_logs_again(self) -> None:
        """Open the logs that could not be opened, for example for want of a file descriptor."""
        self._partitions.open_again()

    async def delete_files(self) -> None:
        """Unlink the files that were renamed for deletion more than file.delete.delay.ms ago."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            if partition.log is not None:
                partition.log.delete_pending_files(now_ms)
        for directory in self._partitions.log_dirs:
            if directory.failure is None:
                await asyncio.get_running_loop().run_in_executor(self._disk, directory.delete_pending, now_ms)


def enforce_retention(partition: Partition, now_ms: int) -> int:
    """Enforce the retention of one partition. Returns the number of deleted segments.

    A log that is being compacted is skipped, because a deletion would abort the cleaning pass.
    """
    target = partition.log
    if target is None or target.cleaning is not None:
        return 0
    tiered = partition.context.tiered
    if tiered is not None and target.config.tiered:
        tiered.note_copied(partition.remote, target)
    deleted = target.enforce_retention(now_ms, partition.high_watermark)
    if deleted:
        log.info("segments deleted", partition=str(partition.name), segments=deleted)
    return deleted
