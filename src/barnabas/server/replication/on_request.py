"""Shell: upkeep when somebody asks for it, and what is known of a partition when somebody asks why.

The same passes as the node makes by itself (`cleaning/compaction.py`, `upkeep.py`), one partition at a time, with an
account of what was done. Asking never changes anything.
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
from barnabas.server.replication.cleaning.compaction import CleanerFacts, Compactor
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.replication.upkeep import Upkeep, retain_one
from barnabas.server.storage.cleaner.candidate import Candidate, assess
from barnabas.server.storage.explain import LogFacts, explain_log
from barnabas.server.storage.log import Log
from barnabas.server.storage.retention import RetentionStatus

BEING_CLEANED: Final = "BEING_CLEANED"
"""The verdict, beside those of the rules, when a pass of the cleaner is under way."""


class CompactOptions(Struct, frozen=True):
    """`roll`: close the active segment first; `force`: also what is not due; `dry_run`: only look."""

    roll: bool = False
    force: bool = False
    dry_run: bool = False


class UpkeepDone(Struct, frozen=True):
    """What a pass did to a partition; `verdict` says why it did something, or why nothing was to be done (any more)."""

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


class PartitionFacts(Struct, frozen=True):
    """All that this node knows of a partition it leads."""

    leader_epoch: int
    log: LogFacts
    cleaner: CleanerFacts
    retention_interval_ms: int


class OnRequest:
    """Explains partitions, and compacts or trims them now. Raises KafkaError for those it does not lead."""

    def __init__(self, partitions: Partitions, upkeep: Upkeep, compactor: Compactor, clock: Clock) -> None:
        self._partitions = partitions
        self._upkeep = upkeep
        self._compactor = compactor
        self._clock = clock

    def explain(self, name: TopicPartition) -> PartitionFacts:
        partition, log = self._led(name)
        return PartitionFacts(
            partition.leader_epoch,
            explain_log(log, partition.high_watermark, self._clock.now_ms()),
            self._compactor.facts(name),
            self._upkeep.config.log_retention_check_interval_ms,
        )

    async def began_ms(self, name: TopicPartition, offset: int, disk: Executor) -> int:
        """When the batch at this offset was made; -1 when its header cannot be read (any more)."""
        _, log = self._led(name)
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

    async def compact(self, name: TopicPartition, options: CompactOptions) -> UpkeepDone:
        """A pass of the cleaner, if one is due or `force` asks for it."""
        partition, log = self._led(name)
        before, segments = log.size_bytes, len(log.segments)
        if options.roll and log.config.compact and not options.dry_run:
            log.roll(self._clock.now_ms())
        found: Candidate = assess(log, partition.high_watermark, self._clock.now_ms())
        verdict, done = found.verdict.name, None
        if log.cleaning is not None:
            verdict = BEING_CLEANED
        elif found.verdict.possible and (found.verdict.due or options.force) and not options.dry_run:
            done = await self._compactor.clean_now(name)
            if done is None:
                verdict = BEING_CLEANED  # the node's own cleaner was faster
        return UpkeepDone(
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

    def retain(self, name: TopicPartition, *, dry_run: bool) -> UpkeepDone:
        """Delete what retention allows to delete."""
        partition, log = self._led(name)
        before, segments, now_ms = log.size_bytes, len(log.segments), self._clock.now_ms()
        deleted = 0 if dry_run else retain_one(partition, now_ms)
        left: RetentionStatus = log.explain_retention(partition.high_watermark, now_ms)
        return UpkeepDone(
            deleted > 0,
            left.verdict.name if log.cleaning is None else BEING_CLEANED,
            "",
            before,
            log.size_bytes,
            segments,
            len(log.segments),
            log.log_start_offset,
            log.cleaned_offset,
            segments_deleted=deleted,
        )

    def _led(self, name: TopicPartition) -> tuple[Partition, Log]:
        partition = self._partitions.require(name.topic, name.partition)
        if partition.log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {name} is offline.")
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition, partition.log
