"""Shell: the bytes of a closed segment that are copied: the log file, its indexes, producers, and leader epochs.

A source is taken on the event loop and read in another thread. A closed segment never changes, and its open file stays
readable if the segment is deleted meanwhile.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.log_files import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
    parse_offset_file,
)
from barnabas.server.storage.epochs import EpochEntry, LeaderEpochs
from barnabas.server.storage.errors import CorruptIndexError, FileMissingError
from barnabas.server.storage.fs import File, FileSystem, read_file
from barnabas.server.storage.log import Log
from barnabas.server.storage.producers.snapshots import SnapshotFiles, encode_snapshot
from barnabas.server.storage.producers.state import ProducerState
from barnabas.server.storage.replaying import replay_producers
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.server.storage.segments.indexes import OffsetIndex, TimeIndex
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.tiering.copying import ClosedSegment
from barnabas.server.tiering.lineage import epochs_between
from barnabas.server.tiering.store.names import LEADER_EPOCHS


class SegmentSource(Struct, frozen=True):
    """A closed segment that is to be copied."""

    fs: FileSystem
    directory: str
    base_offset: int
    next_offset: int
    """The base offset of the following segment."""
    size_bytes: int
    max_timestamp: int
    leader_epochs: tuple[EpochEntry, ...]
    """The leader epochs of the segment's records."""
    lineage: tuple[EpochEntry, ...]
    """The leader epochs of the log up to the segment's end."""
    index_interval_bytes: int
    file: File
    producers: ProducerState
    """An empty state, for the producers as of the segment's end."""

    def read_small_files(self) -> dict[str, bytes]:
        """The bytes of all objects except the log file, by suffix; without an empty transaction index. For a thread
        that may wait for the disk. Raises StorageError."""
        offsets, times = self._indexes()
        files = {
            OFFSET_INDEX: offsets,
            TIME_INDEX: times,
            SNAPSHOT: self._snapshot(),
            LEADER_EPOCHS: LeaderEpochs(self.lineage).encode(),
        }
        txns = self._read(TXN_INDEX)
        if txns:
            files[TXN_INDEX] = txns
        return files

    def read_log(self, position: int, length: int) -> Buffer:
        """A part of the log file. For a thread that may wait for the disk. Raises StorageError."""
        return self.file.read_at(position, min(length, self.size_bytes - position))

    def _read(self, suffix: str) -> bytes:
        try:
            return read_file(self.fs, f"{self.directory}/{offset_file(self.base_offset, suffix)}")
        except FileMissingError:
            return b""

    def _indexes(self) -> tuple[bytes, bytes]:
        """The offset and the time index. They are built from the log file if the index files are missing or damaged:
        after a crash, the broker itself rebuilds them only when it needs them."""
        offsets, times = self._read(OFFSET_INDEX), self._read(TIME_INDEX)
        try:
            OffsetIndex.decode(self.base_offset, offsets, self.size_bytes)
            known = TimeIndex.decode(self.base_offset, times)
            indexed = bool(offsets) or self.size_bytes <= self.index_interval_bytes
            if indexed and known.last_entry.timestamp == self.max_timestamp:
                return offsets, times
        except CorruptIndexError:
            pass
        return build_indexes(self)

    def _snapshot(self) -> bytes:
        """The producers as of the segment's end. A segment that was rolled has a snapshot; if a crash or a damage has
        cost it, the producers are rebuilt from an earlier snapshot and the local segments after it."""
        try:
            return read_file(self.fs, f"{self.directory}/{offset_file(self.next_offset, SNAPSHOT)}")
        except FileMissingError:
            pass
        found = [parsed for name in self.fs.listdir(self.directory) if (parsed := parse_offset_file(name)) is not None]
        snapshots = SnapshotFiles(
            self.fs, self.directory, [o for o, kind, mark in found if kind == SNAPSHOT and not mark]
        )
        segments = [
            Segment(self.fs, self.directory, offset, index_interval_bytes=self.index_interval_bytes, created_ms=0)
            for offset, kind, mark in sorted(found)
            if kind == LOG and not mark and offset < self.next_offset
        ]
        replay_producers(self.producers, snapshots, segments, segments[0].base_offset, self.next_offset, now_ms=0)
        return encode_snapshot(self.producers.entries)


def build_indexes(source: SegmentSource) -> tuple[bytes, bytes]:
    """The offset index and the time index of a segment, from the headers of its batches."""
    offset_index, time_index = OffsetIndex(source.base_offset), TimeIndex(source.base_offset)
    largest, offset_of_largest, since = -1, source.base_offset, 0
    for position, header in walk_headers(source.file, 0, source.size_bytes):
        if header.max_timestamp > largest:
            largest, offset_of_largest = header.max_timestamp, header.last_offset
        if since > source.index_interval_bytes:
            offset_index.append(header.last_offset, position)
            time_index.maybe_append(largest, offset_of_largest)
            since = 0
        since += header.size
    time_index.maybe_append(largest, offset_of_largest)
    return offset_index.encode(), time_index.encode()


def closed_segments(log: Log) -> list[ClosedSegment]:
    """The closed segments of a log, in order."""
    segments = list(log.segments)
    return [
        ClosedSegment(segment.base_offset, following.base_offset, segment.size)
        for segment, following in pairwise(segments)
    ]


def source_of(log: Log, closed: ClosedSegment) -> SegmentSource | None:
    """The source of a closed segment, or None if the log does not have the segment any more. Raises StorageError."""
    segment: Segment | None = log.segments.floor(closed.base_offset)
    if segment is None or segment.base_offset != closed.base_offset:
        return None
    with log.guarded():
        return SegmentSource(
            log.fs,
            log.path,
            closed.base_offset,
            closed.next_offset,
            segment.size,
            segment.max_timestamp,
            epochs_between(log.epoch_entries, closed.base_offset, closed.next_offset),
            tuple(entry for entry in log.epoch_entries if entry.start_offset < closed.next_offset),
            log.config.index_interval_bytes,
            segment.file(),
            log.producers.blank(),
        )
