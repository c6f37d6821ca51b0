"""Value: what the driver passes to a task, and what the task returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from barnabas.client.values import HandedOverTransaction
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.core.reprs import repr_without
from barnabas.protocol.records.compression import CompressionType
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.mirror.ports import OffsetRun


@dataclass(frozen=True, slots=True)
class Provenance:
    """The header that says where a record was produced: it gets the alias of the source cluster. Records whose header
    has the alias of the target cluster are left out."""

    header: str
    source_alias: str
    target_alias: str


@dataclass(frozen=True, slots=True)
class RangeToCopy:
    """The records of a source partition from `start` on, to the target partition of the same number. `end` is the end
    of the source partition that readers saw when the micro-batch was planned; a task may copy more."""

    partition: TopicPartition
    target_topic: str
    start: int
    end: int
    topic_id: UUID = NO_TOPIC_ID
    """The id of the source topic that the offsets belong to; NO_TOPIC_ID if it has none."""

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.partition.partition)


@dataclass(frozen=True, slots=True)
class CopyJob:
    """What all tasks of a copier have in common."""

    source_settings: Mapping[str, str]
    target_settings: Mapping[str, str]
    name: SinkName
    run_id: str
    transactional: bool = True
    codec: CompressionType | None = None
    """The codec of the copied batches; None keeps that of the source."""
    provenance: Provenance | None = None
    bytes_max: int = 64 * 1024 * 1024
    """A task ends after about this many bytes of fetched batches..."""
    duration_max_ms: int = 5_000
    """... or after this time, and the next micro-batch copies the rest."""
    stall_timeout_ms: int = 120_000

    __repr__ = repr_without("source_settings", "target_settings")


@dataclass(frozen=True, slots=True)
class CopyTask:
    """What one task copies. A partition belongs to one task only, so that its records keep their order."""

    job: CopyJob
    batch_id: int
    index: int
    ranges: tuple[RangeToCopy, ...]


@dataclass(frozen=True, slots=True)
class PartitionCopied:
    """What a task has copied of one partition: the records before `next_upstream`."""

    partition: TopicPartition
    next_upstream: int
    runs: tuple[OffsetRun, ...] = ()
    records: int = 0
    bytes: int = 0
    newest_timestamp_ms: int = -1
    out_of_range: bool = False
    """The source had deleted the records at the position, before or while they were copied."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task attempt. `transaction` is open and has the copied records; None if there are none, or
    without transactions."""

    index: int
    attempt: int
    partitions: tuple[PartitionCopied, ...]
    transaction: HandedOverTransaction | None = None
