"""Machine: compares the batches of one partition on all its replicas, as far as all of them have committed batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.core.buffers import Buffer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import BatchHeader, iter_batches


@dataclass(frozen=True, slots=True)
class ReplicaRecords:
    """What a replica has returned from the common offset on."""

    high_watermark: int
    records: Buffer


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """How far all replicas are equal, and what differs."""

    next_offset: int
    """Where to compare next: after the last batch that all replicas have."""
    high_watermark: int
    """The highest of all replicas; -1 without replicas."""
    differences: tuple[str, ...] = ()
    is_fatal: bool = False
    """The replicas have batches of different offsets, so they cannot be compared any further."""


def compare(partition: TopicPartition, offset: int, replicas: Mapping[int, ReplicaRecords]) -> ReplicaComparison:
    """Compare what all replicas have from `offset` on. A batch counts for a replica below its high watermark only."""
    high_watermark = max((r.high_watermark for r in replicas.values()), default=-1)
    streams = {replica: _committed(found) for replica, found in sorted(replicas.items())}
    differences: list[str] = []
    while streams:
        row = {replica: next(stream, None) for replica, stream in streams.items()}
        batches = {replica: batch for replica, batch in row.items() if batch is not None}
        if len(batches) < len(row):
            break
        (first, expected), *others = batches.items()
        for replica, batch in others:
            if batch.last_offset != expected.last_offset:
                differences.append(
                    f"partition {partition}: replica {first}'s offset {expected.last_offset} doesn't match replica "
                    f"{replica}'s offset {batch.last_offset}"
                )
                return ReplicaComparison(offset, high_watermark, tuple(differences), is_fatal=True)
            if batch.crc != expected.crc:
                differences.append(
                    f"partition {partition} has unmatched checksum at offset {batch.last_offset}; replica {first}'s "
                    f"checksum {expected.crc}; replica {replica}'s checksum {batch.crc}"
                )
        offset = expected.last_offset + 1
    return ReplicaComparison(offset, high_watermark, tuple(differences))


def _committed(found: ReplicaRecords) -> Iterator[BatchHeader]:
    for _, batch in iter_batches(found.records):
        if batch.last_offset >= found.high_watermark:
            return
        yield batch
