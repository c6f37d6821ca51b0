"""Port: what the part that decides (topics, offsets, checkpoints) and the part that copies records have in common.

    MirrorRunner  --CopyPlan-->  RecordCopier  --CopiedRanges, after each committed micro-batch-->  MirrorRunner

The runner creates the target topics before it starts a plan. A changed set of topics is a new plan: the runner stops
the copier, reads the positions again, and starts it with the new plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.core.ids import TopicPartition
from barnabas.core.reprs import repr_without


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What to copy from one cluster to another."""

    source_alias: str
    target_alias: str
    source_settings: Mapping[str, str]
    """Settings of the consumers of the source cluster, by Kafka's names: bootstrap.servers, isolation.level, ..."""
    target_settings: Mapping[str, str]
    """Settings of the producers of the target cluster, by Kafka's names."""
    topics: Mapping[str, str]
    """Source topic -> target topic. The records of a partition go to the partition of the same number."""
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The next upstream offset to copy, for each source partition that has been copied before. A copier with an
    `offsets_topic` reads it again, after it has completed what an earlier copier had decided. A partition without a
    position starts at `auto.offset.reset` of the source settings, whose default here is earliest."""
    offsets_topic: str = ""
    """The topic of the target cluster (`mm2-offsets.<source>.internal`) that has the positions. The copier writes
    `records.encode_source_offset` of each copied partition to it, in the transaction that decides on a micro-batch if
    the copier is transactional. "" writes no positions."""
    transactional: bool = True
    """Exactly once; otherwise at least once, without transactions in the target topics."""
    fail_on_data_loss: bool = True
    """Whether records that the source cluster has deleted before they were copied stop the copier
    (`on.data.loss=fail`), or are counted in `CopiedRange.lost` (`on.data.loss=report`)."""
    provenance_header: str | None = None
    """If set, each copied record gets this header with the source alias as its value, unless it has the header, and a
    record whose header names the target alias is left out, so that two clusters with equal topic names do not echo."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the copier: tasks.max, trigger.interval.ms, max.bytes.per.trigger."""

    __repr__ = repr_without("source_settings", "target_settings", "options")

    @property
    def name(self) -> str:
        """The name of the pair, as in the configuration: `A->B`."""
        return f"{self.source_alias}->{self.target_alias}"


@dataclass(frozen=True, slots=True)
class OffsetRun:
    """Records without a gap on either side: `count` upstream offsets from `upstream`, at the downstream offsets from
    `downstream`, in the same order."""

    upstream: int
    downstream: int
    count: int

    @property
    def last_upstream(self) -> int:
        return self.upstream + self.count - 1

    @property
    def last_downstream(self) -> int:
        return self.downstream + self.count - 1


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """What a micro-batch has copied of one source partition."""

    partition: TopicPartition
    """The source partition."""
    runs: Sequence[OffsetRun]
    """In ascending order. The first and the last record of the range are always in them; runs between may be left out
    where there are very many. Empty if all records of the range were markers, aborted or left out."""
    next_upstream: int
    """The upstream offset at which the next micro-batch begins."""
    records: int
    bytes: int
    """The size of the keys, values and headers of the records."""
    newest_timestamp_ms: int
    """The largest timestamp of the records; -1 without records."""
    source_log_end: int
    """The end of the source partition when the micro-batch was planned."""
    lost: int = 0
    """Upstream offsets that were deleted before they could be copied."""


@dataclass(frozen=True, slots=True)
class CopiedRanges:
    """A committed micro-batch."""

    batch_id: int
    committed_ms: int
    """When the micro-batch was committed, by the clock of the driver."""
    ranges: Sequence[CopiedRange]


class RecordCopier(Protocol):
    """Copies records until it is stopped. The methods block, and are called from one thread at a time."""

    def start(self, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        """Begin to copy, and return. First completes what an earlier copier of the same pair had decided.
        `on_copied` is called after each committed micro-batch, in any thread, in the order of the micro-batches; it
        does not block. Raises BarnabasError."""

    def failure(self) -> Exception | None:
        """The error that has ended the copying; None while it runs."""

    def stop(self, timeout_s: float) -> None:
        """End after the current micro-batch, or abort it when `timeout_s` has passed. Does nothing when stopped."""
