"""Shell: runs in a worker: reads closed segments of a partition from the files of its leader (`readFrom=segments`).

    directory -> check whose it is -> list, open, list again -> batches, up to the readable end
                                                                the rest of the range: the broker

Retention and compaction may remove a segment meanwhile: they rename its files, and unlink them later. The reader holds
the files open. If the files changed between the two listings, the reader begins again, and gives up after a few
attempts. Whatever cannot be read from files is read from the broker.

The end of a range is below the high watermark that the leader had when the range was planned, so the files of that
leader have the range's committed records. A follower's files may have others, hence the check of the node id.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from barnabas.client.values import FetchedBatches
from barnabas.core.ids import NO_LEADER_EPOCH
from barnabas.protocol.records.batch import HEADER_SIZE, iter_batches, read_header
from barnabas.protocol.records.errors import CorruptBatchError, LogFileError
from barnabas.protocol.records.log_files import (
    LOG,
    META_PROPERTIES,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    TXN_INDEX,
    AbortedTxn,
    MetaProperties,
    SnapshotProducer,
    decode_aborted,
    decode_snapshot_producers,
    decode_topic_id,
    offset_file,
    overlapping,
    position_before,
)
from barnabas.spark.source.fetched import FetchedRange
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.segment_plan import (
    ClosedSegments,
    SegmentDirectory,
    SegmentsReplacedError,
    SegmentsUnavailableError,
    WrongDirectoryError,
    choose_segments,
    readable_end,
)

log = logging.getLogger("barnabas.spark")

READ_BYTES = 8 * 1024 * 1024
"""The size of one read of a segment."""
LISTINGS_MAX = 4
"""How often a directory is listed while its segments are being replaced."""
_PAUSE_S = 0.05

_warned: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A closed segment."""

    base: int
    read: Callable[[int, int], bytes]
    """Read at most this many bytes, at this position, of the log file."""
    size: int
    index: bytes


@dataclass(frozen=True, slots=True)
class OpenSegments:
    """The closed segments of a range, and what read_committed needs to know about them."""

    segments: tuple[OpenSegment, ...]
    aborted: tuple[AbortedTxn, ...]
    end: int
    """The offset up to which the range is read from these segments."""


def read_segments(
    directory: SegmentDirectory, wanted: PartitionRange, *, committed: bool, check_crcs: bool
) -> Generator[FetchedRange, None, int]:
    """Yield the batches of a range that are in closed segments. Returns the offset from which on the range is to be
    read from the broker; `wanted.start` if nothing can be read from files.
    """
    position = wanted.start
    try:
        while position < wanted.end:
            left = PartitionRange(wanted.tp, position, wanted.end)
            with open_segments(directory, left, committed=committed) as found:
                readable = PartitionRange(wanted.tp, position, found.end)
                for batches in batches_of(found, readable):
                    yield FetchedRange(readable, batches, check_crcs)
                    position = min(batches.end, found.end)
            if found.end <= left.start:
                break
            position = found.end
    except (OSError, LogFileError, CorruptBatchError, SegmentsUnavailableError) as error:
        _explain(directory, wanted, position, error)
    return position


def _explain(directory: SegmentDirectory, wanted: PartitionRange, position: int, error: Exception) -> None:
    """Log why records are read from the broker: as a warning, and once for each directory, if files are missing or are
    not those of the leader."""
    if isinstance(error, SegmentsUnavailableError) and not isinstance(error, WrongDirectoryError):
        log.info("%s: offsets from %d on are read from the broker: %s", wanted.tp, position, error)
        return
    key = (directory.data_directory, type(error).__name__)
    if key in _warned:
        return
    _warned.add(key)
    log.warning(
        "readFrom=segments: %s is read from the broker, because the files of broker %d cannot be used: %s. Run"
        " executors where %s is mounted, or say with segments.root where it is",
        wanted.tp,
        directory.node_id,
        error,
        directory.data_directory,
    )


@contextlib.contextmanager
def open_segments(
    directory: SegmentDirectory, wanted: PartitionRange, *, committed: bool
) -> Generator[OpenSegments, None, None]:
    """Open the closed segments of a range. Raises SegmentsUnavailableError, LogFileError and OSError."""
    _check_owner(directory)
    with contextlib.ExitStack() as files:
        for attempt in range(LISTINGS_MAX):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            try:
                found = _open_listed(directory.path, wanted, committed, files)
                break
            except (SegmentsReplacedError, FileNotFoundError) as error:
                files.close()
                if attempt + 1 == LISTINGS_MAX:
                    raise SegmentsReplacedError(str(error)) from None
        yield found


def _check_owner(directory: SegmentDirectory) -> None:
    path = f"{directory.data_directory}/{META_PROPERTIES}"
    meta = MetaProperties.decode(Path(path).read_bytes(), path)
    if (meta.cluster_id, meta.node_id) != (directory.cluster_id, directory.node_id):
        raise WrongDirectoryError(
            f"{path} names broker {meta.node_id} of cluster {meta.cluster_id}, but the leader is broker"
            f" {directory.node_id} of cluster {directory.cluster_id}"
        )
    topic_id = decode_topic_id(Path(directory.path, PARTITION_METADATA).read_bytes())
    if topic_id != directory.topic_id:
        raise WrongDirectoryError(f"{directory.path} has the topic id {topic_id}, the topic {directory.topic_id}")


def _open_listed(path: str, wanted: PartitionRange, committed: bool, files: contextlib.ExitStack) -> OpenSegments:
    """List the directory, open the segments, and list it again: the files belong together if the two listings are
    equal. Raises SegmentsReplacedError if they are not.
    """
    before = _names(path)
    closed = choose_segments(before, wanted.start, wanted.end, committed=committed)
    names = set(before)
    opened: dict[str, int] = {}

    def load(base: int, kind: str) -> bytes:
        name = offset_file(base, kind)
        if name not in names:
            return b""
        fd = os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            opened[name] = os.fstat(fd).st_ino
            return os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    segments = []
    aborted: list[AbortedTxn] = []
    for base in closed.bases:
        name = offset_file(base, LOG)
        fd = os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        files.callback(os.close, fd)
        status = os.fstat(fd)
        opened[name] = status.st_ino
        segments.append(OpenSegment(base, partial(os.pread, fd), status.st_size, load(base, OFFSET_INDEX)))
        if committed:
            aborted += decode_aborted(load(base, TXN_INDEX), base)
    producers: list[SnapshotProducer] = []
    if committed:
        producers, _ = decode_snapshot_producers(load(closed.boundary, SNAPSHOT), f"the snapshot at {closed.boundary}")
    _check_unchanged(path, closed, set(before), opened, wanted, committed)
    return OpenSegments(tuple(segments), tuple(aborted), readable_end(closed, wanted.end, producers))


def _check_unchanged(
    path: str,
    closed: ClosedSegments,
    before: set[str],
    opened: dict[str, int],
    wanted: PartitionRange,
    committed: bool,
) -> None:
    """Raise SegmentsReplacedError if the files are not those that the directory has now."""
    now = _names(path)
    again = choose_segments(now, wanted.start, wanted.end, committed=committed)
    kinds = (LOG, TXN_INDEX) if committed else (LOG,)
    relevant = {offset_file(base, kind) for base in closed.bases for kind in kinds}
    same = again.bases[: len(closed.bases)] == closed.bases and before & relevant == set(now) & relevant
    if not same or any(Path(path, name).stat().st_ino != inode for name, inode in opened.items()):
        raise SegmentsReplacedError("segments were replaced or deleted while they were opened")


def batches_of(found: OpenSegments, wanted: PartitionRange) -> Iterator[FetchedBatches]:
    """The batches of a range of the segments."""
    position = wanted.start
    for segment in found.segments:
        if position >= wanted.end:
            return
        at = position_before(segment.index, segment.base, position)
        while at < segment.size and position < wanted.end:
            data = _read_whole(segment, at)
            size, end = _extent(data, wanted.end)
            if not size:
                return  # the first batch is behind the end of the range
            at += size
            end = max(end, position)
            first = int.from_bytes(data[:8], "big")
            aborted, _ = overlapping(found.aborted, max(position, first), end)
            yield FetchedBatches(
                wanted.tp,
                position,
                memoryview(data)[:size],
                wanted.end,
                wanted.end,
                found.segments[0].base,
                tuple((txn.producer_id, txn.first_offset) for txn in aborted),
                end,
                NO_LEADER_EPOCH,
            )
            position = end


def _read_whole(segment: OpenSegment, at: int) -> bytes:
    """Read about READ_BYTES, and at least one whole batch."""
    data = segment.read(READ_BYTES, at)
    try:
        size = read_header(data).size
    except CorruptBatchError as error:
        raise SegmentsUnavailableError(f"the segment {segment.base} has no batch at byte {at}: {error}") from None
    if size > len(data):
        data = segment.read(size, at)
    if size > len(data) or size < HEADER_SIZE:
        raise SegmentsUnavailableError(f"the segment {segment.base} ends inside the batch at byte {at}")
    return data


def _extent(data: bytes, end_offset: int) -> tuple[int, int]:
    """The size of the whole batches that begin below `end_offset`, and the offset after them."""
    size, end = 0, 0
    for at, header in iter_batches(data):
        if header.base_offset >= end_offset:
            break
        size, end = at + header.size, header.next_offset
    return size, end


def _names(path: str) -> list[str]:
    return [entry.name for entry in Path(path).iterdir()]
