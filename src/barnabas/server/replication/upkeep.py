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


class UpkeepConfig(Struct, frozen=True):
    """The intervals of the periodic tasks."""

    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    producer_id_expiration_check_interval_ms: int
    flush_check_interval_ms: int = 1_000
    """How often logs are checked for data older than `flush.ms`. Not a config."""
    deletion_check_interval_ms: int = 10_000
    """How often logs are checked for files older than `file.delete.delay.ms`. Not a config."""


class Upkeep:
    """The chores of one node. `run` until cancelled."""

    def __init__(
        self, partitions: Partitions, flusher: Flusher, disk: Executor, clock: Clock, config: UpkeepConfig
    ) -> None:
        self._partitions = partitions
        self._flusher = flusher
        self._disk = disk
        self._clock = clock
        self._config = config

    async def run(self) -> None:
        config = self._config
        async with asyncio.TaskGroup() as chores:
            for interval_ms, chore in (
                (config.log_retention_check_interval_ms, self.retain),
                (config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_watermarks),
                (config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
                (config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_starts),
                (config.producer_id_expiration_check_interval_ms, self.expire_producers),
                (config.flush_check_interval_ms, self.flush_what_is_due),
                (config.deletion_check_interval_ms, self.delete_files),
            ):
                chores.create_task(self._repeat(interval_ms, chore))

    async def _repeat(self, interval_ms: int, chore: Callable[[], object]) -> None:
        await asyncio.sleep(min(interval_ms, self._config.log_initial_task_delay_ms) / 1000)
        while True:
            try:
                outcome = chore()
                if asyncio.iscoroutine(outcome):
                    await outcome
            except KafkaError as error:
                log.error("a chore failed", chore=chore.__name__, reason=str(error))
            await asyncio.sleep(interval_ms / 1000)

    @property
    def config(self) -> UpkeepConfig:
        return self._config

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
