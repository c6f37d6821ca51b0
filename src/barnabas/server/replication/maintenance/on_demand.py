"""Shell: compaction and retention of single partitions on demand, and an explanation of a partition's state.

The passes are the ones that the broker also runs by itself (`cleaning/compaction.py`, `maintenance/scheduled.py`). Each
returns a report of its effect. `explain` changes nothing.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.server.replication.cleaning.compaction import CleanerStatus, Compactor
from barnabas.server.replication.maintenance.scheduled import ScheduledMaintenance, enforce_retention
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.storage.cleaner.cleanable import CleanableLog, assess
from barnabas.server.storage.explain import LogFacts, explain_log
from barnabas.server.storage.log import Log
from barnabas.server.storage.retention import RetentionStatus

BEING_CLEANED: Final = "BEING_CLEANED"
"""The verdict while a cleaning pass is in progress; the other verdicts come from the storage package."""


class CompactOptions(Struct, frozen=True):
    """The options of a compaction on demand. `roll` closes the active segment first, `force` compacts a log that is not
    due, `dry_run` changes nothing."""

    roll: bool = False
    force: bool = False
    dry_run: bool = False


class MaintenanceResult(Struct, frozen=True):
    """The effect of a pass on one partition. `verdict` is the reason for the pass or for its absence."""

    done: bool
    verdict: str
    detail: str
    bytes_before: int
    bytes_after: int
    segments_before: int
    segments_after: int
    log_start_offset: int
    cleaned_offset: int
    segments_deleted: int = 0
    records_read: int = 0
    records_kept: int = 0
    dirty_ratio: float = 0.0
    seconds: float = 0.0


class PartitionExplanation(Struct, frozen=True):
    """The state of a partition at its leader."""

    leader_epoch: int
    log: LogFacts
    cleaner: CleanerStatus
    retention_interval_ms: int


class OnDemandMaintenance:
    """Explains, compacts and enforces the retention of partitions that this broker leads.

    The methods raise KafkaError for other partitions.
    """

    def __init__(
        self, partitions: Partitions, scheduled: ScheduledMaintenance, compactor: Compactor, clock: Clock
    ) -> None:
        self._partitions = partitions
        self._scheduled = scheduled
        self._compactor = compactor
        self._clock = clock

    def explain(self, name: TopicPartition) -> PartitionExplanation:
        partition, log = self._require_led(name)
        return PartitionExplanation(
            partition.leader_epoch,
            explain_log(log, partition.high_watermark, self._clock.now_ms()),
            self._compactor.status(name),
            self._scheduled.config.log_retention_check_interval_ms,
        )

    async def read_batch_timestamp(self, name: TopicPartition, offset: int, disk: Executor) -> int:
        """The base timestamp of the batch at `offset`, or -1 if its header cannot be read."""
        _, log = self._require_led(name)
        if not log.log_start_offset <= offset < log.log_end_offset:
            return -1
        plan = log.plan_read(offset, HEADER_SIZE, upper_offset=log.log_end_offset, min_one_batch=True)
        try:
            result = plan.try_run()
            if result is None:
                result = await asyncio.get_running_loop().run_in_executor(disk, plan.run)
        except KafkaError:
            return -1
        return read_header(result.data).base_timestamp if len(result.data) >= HEADER_SIZE else -1

    async def compact(self, name: TopicPartition, options: CompactOptions) -> MaintenanceResult:
        """Compact the partition if it is due or `options.force` is set."""
        partition, log = self._require_led(name)
        before, segments = log.size_bytes, len(log.segments)
        if options.roll and log.config.compact and not options.dry_run:
            log.roll(self._clock.now_ms())
        found: CleanableLog = assess(log, partition.high_watermark, self._clock.now_ms())
        verdict, done = found.verdict.name, None
        if log.cleaning is not None:
            verdict = BEING_CLEANED
        elif found.verdict.possible and (found.verdict.due or options.force) and not options.dry_run:
            done = await self._compactor.compact(name)
            if done is None:
                verdict = BEING_CLEANED  # a scheduled pass began first
        return MaintenanceResult(
            done is not None,
            verdict,
            found.detail,
            before,
            log.size_bytes,
            segments,
            len(log.segments),
            log.log_start_offset,
            log.cleaned_offset,
            records_read=0 if done is None else done.stats.records_read,
            records_kept=0 if done is None else done.stats.records_kept,
            dirty_ratio=found.dirty_ratio,
            seconds=0.0 if done is None else done.stats.seconds,
        )

    def enforce_retention(self, name: TopicPartition, *, dry_run: bool) -> MaintenanceResult:
        """Delete the segments that exceed the retention."""
        partition, log = self._require_led(name)
        before, segments, now_ms = log.size_bytes, len(log.segments), self._clock.now_ms()
        deleted = 0 if dry_run else enforce_retention(partition, now_ms)
        remaining: RetentionStatus = log.explain_retention(partition.high_watermark, now_ms)
        return MaintenanceResult(
            deleted > 0,
            remaining.verdict.name if log.cleaning is None else BEING_CLEANED,
            "",
            before,
            log.size_bytes,
            segments,
            len(log.segments),
            log.log_start_offset,
            log.cleaned_offset,
            segments_deleted=deleted,
        )

    def _require_led(self, name: TopicPartition) -> tuple[Partition, Log]:
        partition = self._partitions.require(name.topic, name.partition)
        if partition.log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {name} is offline.")
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition, partition.log
