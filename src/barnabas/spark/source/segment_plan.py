"""Machine: decides which part of a range a task reads from the closed segments of a partition's directory.

    names in the directory, range -> choose_segments -> the segments to open, and the boundary at which they end
    snapshot at the boundary      -> readable_end    -> the offset up to which their records are read

All segments but the last are closed: they never change, and compaction replaces them as a whole. A task must not see a
replacement half done, so a directory with a `.swap` file among the wanted segments is listed again.

With isolation.level=read_committed, the transaction indexes of closed segments have the aborted transactions whose
markers are in closed segments. The snapshot at the boundary has the transactions that are open there. Their markers
come later, so their records, and all that follow, are read from the broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from barnabas.protocol.records.log_files import LOG, SNAPSHOT, SWAP, SnapshotProducer, parse_offset_file
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.source.remote_plan import RemoteCopies


class SegmentsUnavailableError(SparkSourceError):
    """The closed segments of a range cannot be read, and its records are read from the broker. The message says why."""


class WrongDirectoryError(SegmentsUnavailableError):
    """The directory belongs to another cluster, broker or topic."""


class SegmentsReplacedError(SegmentsUnavailableError):
    """Segments are being replaced or deleted: the directory should be listed again."""


SEGMENTS_MAX = 64
"""The largest number of segments that a task opens at once."""


@dataclass(frozen=True, slots=True)
class SegmentDirectory:
    """A partition's directory on the broker that leads the partition, as executors see it, and whose it must be."""

    path: str
    data_directory: str
    """The directory above, with meta.properties."""
    cluster_id: str
    node_id: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class SegmentSources:
    """Where a task reads segments: in a directory of the leader, and in the object store. None: not there."""

    directory: SegmentDirectory | None = None
    remote: RemoteCopies | None = None


NO_SEGMENTS = SegmentSources()


@dataclass(frozen=True, slots=True)
class ClosedSegments:
    """The segments that contain a range, by base offset, and the base offset of the segment after them."""

    bases: tuple[int, ...]
    boundary: int


def choose_segments(names: Iterable[str], start: int, end: int, *, committed: bool) -> ClosedSegments:
    """The closed segments to open first for the offsets from `start` to before `end`. With `committed`, there is a
    snapshot at their boundary. Raises SegmentsUnavailableError if no closed segment has `start`.
    """
    files = [found for found in map(parse_offset_file, names) if found is not None]
    bases = sorted(base for base, kind, mark in files if kind == LOG and not mark)
    snapshots = {base for base, kind, mark in files if kind == SNAPSHOT and not mark}
    first = bisect_right(bases, start) - 1
    if first < 0:
        raise SegmentsReplacedError(f"no segment has the offset {start}; it was deleted, or is being replaced")
    reach = bases[first + 1 : first + 1 + SEGMENTS_MAX]
    boundaries = [base for base in reach if not committed or base in snapshots]
    if not boundaries:
        raise SegmentsUnavailableError(f"the offset {start} is in no closed segment")
    boundary = next((base for base in boundaries if base >= end), boundaries[-1])
    chosen = tuple(base for base in bases[first:] if base < boundary)
    if any(mark == SWAP and chosen[0] <= base <= boundary for base, _, mark in files):
        raise SegmentsReplacedError("compaction is replacing segments")
    return ClosedSegments(chosen, boundary)


def readable_end(closed: ClosedSegments, end: int, producers: Iterable[SnapshotProducer]) -> int:
    """The offset up to which the records of closed segments are read. `producers` are those of the snapshot at the
    boundary; none with isolation.level=read_uncommitted.
    """
    open_transactions = [p.txn_first_offset for p in producers if p.txn_first_offset >= 0]
    return min([end, closed.boundary, *open_transactions])
