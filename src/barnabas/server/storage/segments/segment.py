"""Shell: one segment: a `.log` file with its three indexes.

Batches are appended to the active segment, which is the last one. All others are sealed and never change; compaction
replaces them as a whole. A segment opens its files when they are needed, and `cool()` closes them again, so that
thousands of idle partitions need no descriptors. `size` is the number of bytes of the file that belong to the log.

The active segment keeps the positions of its latest batches in memory, so that consumers near the end of the log are
served without a look-up in a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.core.buffers import Buffer
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.batch import LOG_OVERHEAD, BatchHeader, check_crc
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.storage import names
from barnabas.server.storage.errors import (
    CorruptIndexError,
    DescriptorsExhaustedError,
    DiskIoError,
    FileMissingError,
    StorageError,
)
from barnabas.server.storage.fs import Access, File, FileSystem, read_file
from barnabas.server.storage.segments.batches import ReadableFile, walk_headers
from barnabas.server.storage.segments.index_files import read_last_time_entry, write_index
from barnabas.server.storage.segments.indexes import OffsetIndex, SparseIndex, TimeIndex
from barnabas.server.storage.segments.open_segments import OpenSegments
from barnabas.server.storage.segments.recent_batches import RecentBatches
from barnabas.server.storage.segments.txn_index import TxnIndex
from barnabas.server.storage.values import TimestampOffset

log = get_logger("barnabas.server.storage")

_INT32_MAX: Final = (1 << 31) - 1
UNKNOWN_SIZE: Final = -1


class Found(NamedTuple):
    """The position and size of a batch in the segment's file."""

    position: int
    size: int


def reaches(base_offset: int, offset: int) -> bool:
    """Whether the relative offset fits the 32 bits of an index entry."""
    return 0 <= offset - base_offset <= _INT32_MAX


class Segment:
    """A segment. Its files are named by `base_offset`, which is not larger than the offset of the first batch."""

    __slots__ = (
        "_bytes_since_index",
        "_file",
        "_first_timestamp",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_size",
        "_tail",
        "_time_index",
        "_txn_index",
        "_writable",
        "base_offset",
        "created_ms",
        "directory",
        "fs",
        "index_interval_bytes",
        "jitter_ms",
        "open_segments",
        "suffix",
        "used",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        created_ms: int,
        jitter_ms: int = 0,
        size: int = UNKNOWN_SIZE,
        suffix: str = "",
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.suffix = suffix
        self.open_segments: OpenSegments | None = None
        """Bounds the number of open files. None for a segment that is not part of a log yet."""
        self.used = False
        self._size = size
        self._file: File | None = None
        self._writable = False
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._tail = RecentBatches()

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        created_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> Segment:
        """Create an empty segment. Files that a failed attempt has left under the same names are emptied."""
        self = cls(
            fs,
            directory,
            base_offset,
            index_interval_bytes=index_interval_bytes,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
            size=0,
            suffix=suffix,
        )
        for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX):
            fs.unlink(self.file_path(kind))
        self._file = fs.open(self.file_path(names.LOG), Access.REPLACE)
        self._writable = True
        self.reset_indexes()
        return self

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}{self.suffix}, {self._size} bytes)"

    # --- files

    def file_path(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{kind}{self.suffix}"

    @property
    def size(self) -> int:
        if self._size == UNKNOWN_SIZE:
            self._size = self.fs.stat(self.file_path(names.LOG)).size
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        self._size = value

    @property
    def modified_ms(self) -> int:
        return self.fs.stat(self.file_path(names.LOG)).mtime_ms

    def file(self, access: Access = Access.READ) -> File:
        """The open log file. WRITE is needed before the first append or truncation."""
        file = self._file
        if file is None or (access is Access.WRITE and not self._writable):
            path = self.file_path(names.LOG)
            if access is Access.WRITE and not self.fs.exists(path):
                raise FileMissingError(
                    f"{path} does not exist any more. Restart the broker to recover the log without it."
                )
            file = self._file = self.fs.open(path, access)
            self._writable = access is Access.WRITE
            if self.open_segments is not None:
                self.open_segments.add(self)
        self.used = True
        return file

    @property
    def ready(self) -> bool:
        """Whether `append` can be called without `prepare_append`."""
        return self._writable and self._offset_index is not None

    @property
    def indexed(self) -> bool:
        """Whether the offset index is in memory."""
        return self._offset_index is not None

    def cool(self) -> None:
        """Close the file, and drop the indexes that have been written. Both are loaded again when needed."""
        self._file = None  # the file is closed with the last reference to it
        self._writable = False
        for slot in ("_offset_index", "_time_index", "_txn_index"):
            index: SparseIndex | None = getattr(self, slot)
            if index is not None and index.written == len(index):
                setattr(self, slot, None)
        self._tail = RecentBatches()

    def join(self, open_segments: OpenSegments) -> None:
        """Let `open_segments` close the file when too many segments have one open."""
        self.open_segments = open_segments
        if self._file is not None:
            open_segments.add(self)

    def release(self) -> None:
        """Close the file to spare a descriptor. `OpenSegments` calls this, also for an active segment.

        Indexes that lie completely on the disk are dropped too. Otherwise all stay in memory: a read of the whole
        segment would be needed to build them again.
        """
        self._file = None
        self._writable = False
        if self.indexes_written:
            self._offset_index = self._time_index = self._txn_index = None

    @property
    def indexes_written(self) -> bool:
        """Whether the index files have everything that the indexes in memory have, and also the largest timestamp."""
        indexes: tuple[SparseIndex | None, ...] = (self._offset_index, self._time_index, self._txn_index)
        if any(index is not None and len(index) != index.written for index in indexes):
            return False
        if self._offset_index is not None and not self._offset_index.written and self._size:
            return False  # there may be no file yet
        timed, largest = self._time_index, self._max_timestamp
        return timed is None or largest is None or largest <= timed.last_entry.timestamp

    @property
    def open_file(self) -> File | None:
        """The file if it is open; it is not opened."""
        return self._file

    def rename(self, suffix: str) -> None:
        """Change the second suffix of all files (`""` -> `.deleted`, `.cleaned` -> `.swap`, ...).

        The log file is renamed last, so that a crash in between does not leave a log file alone under the new suffix.
        """
        for kind in (names.TXN_INDEX, names.TIME_INDEX, names.OFFSET_INDEX, names.LOG):
            old = self.file_path(kind)
            with contextlib.suppress(FileMissingError):
                self.fs.rename(old, f"{self.directory}/{self.base_offset:020d}{kind}{suffix}")
        self.suffix = suffix

    def unlink(self) -> None:
        """Delete all files."""
        self.cool()
        for kind in names.SEGMENT_SUFFIXES:
            self.fs.unlink(self.file_path(kind))

    # --- indexes

    @property
    def is_short(self) -> bool:
        """Whether the indexes in memory have no entries yet."""
        indexes: tuple[SparseIndex | None, ...] = (self._offset_index, self._time_index, self._txn_index)
        return not any(index is not None and len(index) for index in indexes)

    def unlink_indexes(self) -> None:
        """Delete the index files of a segment that `is_short`."""
        for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX):
            self.fs.unlink(self.file_path(kind))

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            path = self.file_path(names.OFFSET_INDEX)
            data = read_file(self.fs, path)
            if path != self.file_path(names.OFFSET_INDEX):  # compaction has replaced the segment
                raise FileMissingError(f"{path} was renamed while it was being read")
            index = self._offset_index = OffsetIndex.decode(self.base_offset, data, self.size)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            try:
                data = read_file(self.fs, self.file_path(names.TIME_INDEX))
                index = TimeIndex.decode(self.base_offset, data)
            except (CorruptIndexError, FileMissingError):
                self.rebuild_indexes()
                index = self._time_index
                assert index is not None
            self._time_index = index
        return index

    @property
    def txn_index(self) -> TxnIndex:
        index = self._txn_index
        if index is None:
            try:
                data = read_file(self.fs, self.file_path(names.TXN_INDEX))
                index = TxnIndex.decode(self.base_offset, data)
            except FileMissingError:
                index = TxnIndex(self.base_offset)
            self._txn_index = index
        return index

    def reset_indexes(self) -> None:
        """Replace the indexes by empty ones, to be filled again."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._txn_index = TxnIndex(self.base_offset)
        self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
        self._first_timestamp = None
        self._bytes_since_index = 0
        self._tail = RecentBatches()

    def rebuild_indexes(self) -> None:
        """Rebuild the offset index and the time index from the batch headers. The transaction index is kept, since it
        cannot be built from headers."""
        txn_index = self._txn_index
        self.reset_indexes()
        self._txn_index = txn_index
        for position, header in walk_headers(self.file(), 0, self.size):
            self.index_batch(header, position)
        if self._time_index is not None and self._max_timestamp is not None:
            self._time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self._tail = RecentBatches()

    def indexes_full(self, max_bytes: int, size: int) -> bool:
        """Whether another entry would exceed segment.index.bytes. One entry of the time index is reserved for
        `seal`. `size` is the segment's size: each entry stands for more than index.interval.bytes of it."""
        interval = self.index_interval_bytes
        if interval and (size // interval + 3) * 12 <= max_bytes:
            return False
        return (len(self.offset_index) + 1) * 8 > max_bytes or (len(self.time_index) + 2) * 12 > max_bytes

    def write_indexes(self) -> list[str]:
        """Write the new entries of the indexes to their files. Returns the paths of the files that changed."""
        written = []
        for kind, index in (
            (names.OFFSET_INDEX, self._offset_index),
            (names.TIME_INDEX, self._time_index),
            (names.TXN_INDEX, self._txn_index),
        ):
            path = self.file_path(kind)
            if index is not None and write_index(self.fs, path, index, only_if_filled=kind == names.TXN_INDEX):
                written.append(path)
        return written

    # --- appending

    def append(self, parts: Sequence[Buffer], batches: Sequence[BatchHeader], size: int) -> None:
        """Append whole batches with one `writev`, and update the indexes in memory.

        If the write fails, the file and the indexes are unchanged. Raises DiskFullError, and DiskIoError if the file
        could not be restored.
        """
        file = self._file
        assert file is not None and self._writable, "prepare_append first"
        self.used = True
        position = self._size
        try:
            file.write_at(position, parts)
        except StorageError:
            self._undo_append(file, position)
            raise
        self._size = position + size
        for header in batches:
            self.index_batch(header, position)
            position += LOG_OVERHEAD + header.batch_length
        assert position == self._size, "the sizes of the parts and of the batches differ"

    def _undo_append(self, file: File, position: int) -> None:
        try:
            file.truncate(position)
        except StorageError as e:
            raise DiskIoError(f"cannot remove a half-written batch from {file.path}: {e}") from e

    def prepare_append(self) -> None:
        """Open the file for writing and load the indexes. Needed before the first append to a segment found on disk."""
        self.file(Access.WRITE)
        try:
            _ = self.offset_index, self.time_index, self.max_timestamp
        except (CorruptIndexError, FileMissingError):
            self.rebuild_indexes()
        _ = self.txn_index
        self._bytes_since_index = self.size - self.offset_index.last_position

    def index_batch(self, header: BatchHeader, position: int) -> None:
        """Add a batch at `position` to the indexes in memory. Recovery calls this too."""
        base_offset = header.base_offset
        last_offset = base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = timestamp
        largest = self._max_timestamp
        if largest is None or timestamp > largest:
            self._max_timestamp = largest = timestamp
            self._offset_of_max_timestamp = last_offset
        since = self._bytes_since_index
        if since > self.index_interval_bytes:
            (self._offset_index or self.offset_index).append(last_offset, position)
            (self._time_index or self.time_index).maybe_append(largest, self._offset_of_max_timestamp)
            since = 0
        self._bytes_since_index = since + LOG_OVERHEAD + header.batch_length
        self._tail.add(base_offset, last_offset, position)

    def takes_offset(self, offset: int) -> bool:
        """Whether the offset, relative to the base offset, fits an index entry."""
        return 0 <= offset - self.base_offset <= _INT32_MAX

    def seal(self) -> list[str]:
        """Add the largest timestamp to the time index and write the indexes: there are no more appends. Returns the
        paths of the files written."""
        if self._time_index is not None and self._max_timestamp is not None:
            self._time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self._tail = RecentBatches()
        return self.write_indexes()

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains `offset` and all later ones. Returns the number of bytes removed."""
        found = self.find(offset)
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.truncate_to(offset)
        dropped = 0
        if found is not None:
            dropped = self.size - found.position
            self.file(Access.WRITE).truncate(found.position)
            self.size = found.position
        self._tail.truncate_to(offset)
        if self.size == 0:
            self._first_timestamp = None
        self._bytes_since_index = self.size - self.offset_index.last_position
        last = self.time_index.last_entry
        self._max_timestamp, self._offset_of_max_timestamp = last.timestamp, last.offset
        for _, header in walk_headers(self.file(), self.offset_index.lookup(last.offset), self.size):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset
        with contextlib.suppress(DescriptorsExhaustedError):  # the files have too many entries until the next write
            self.write_indexes()
        return dropped

    # --- looking up

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment, or -1."""
        if self._max_timestamp is None:
            last = self._last_time_entry()
            self._max_timestamp, self._offset_of_max_timestamp = last.timestamp, last.offset
        return self._max_timestamp

    def _last_time_entry(self) -> TimestampOffset:
        """The last entry of the time index. Retention needs the entry of every segment, so only the end of the file is
        read."""
        if self._time_index is None:
            with contextlib.suppress(CorruptIndexError, FileMissingError):
                return read_last_time_entry(self.fs, self.file_path(names.TIME_INDEX), self.base_offset)
        return self.time_index.last_entry

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the largest timestamp."""
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base_offset

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch, from which segment.ms is measured. None for an empty segment."""
        if self._first_timestamp is None and self.size > 0:
            for _, header in walk_headers(self.file(), 0, self.size, 64):
                self._first_timestamp = header.max_timestamp
                break
        return self._first_timestamp

    def find(self, offset: int, file: ReadableFile | None = None) -> Found | None:
        """The first batch whose last offset is not below `offset`, or None if the segment ends below.

        For a sealed segment this is safe in any thread, if `file` is its open file.
        """
        tail = self._tail
        if tail.covers(offset):
            known = tail.find(offset, self._size)
            return None if known is None else Found(*known)
        source = file or self.file()
        indexed, start = self._lookup_entry(offset)
        if start:
            try:
                for position, header in walk_headers(source, start, self.size):
                    if position == start and header.last_offset != indexed:
                        break
                    if header.last_offset >= offset:
                        return Found(position, header.size)
                else:
                    return None
            except CorruptBatchError:
                pass
            self._drop_damaged_index(f"its entry for offset {indexed} does not point to the end of a batch")
        for position, header in walk_headers(source, 0, self.size):
            if header.last_offset >= offset:
                return Found(position, header.size)
        return None

    def _drop_damaged_index(self, reason: str) -> None:
        """Without the file, look-ups begin at the start of the segment; the next start, or append, rebuilds the
        index."""
        path = self.file_path(names.OFFSET_INDEX)
        log.warning("a damaged offset index was deleted; it will be rebuilt", file=path, reason=reason)
        self._offset_index = None
        self.fs.unlink(path)

    def lookup(self, offset: int) -> int:
        """The position of the first batch whose last offset is not below `offset`; the segment's size without one."""
        found = self.find(offset)
        return self.size if found is None else found.position

    def _lookup_entry(self, offset: int) -> tuple[int, int]:
        try:
            return self.offset_index.lookup_entry(offset)
        except CorruptIndexError as error:
            self._drop_damaged_index(str(error))
        except FileMissingError:
            pass
        return -1, 0

    def next_offset(self) -> int:
        """The offset after the last batch, read from the file. Raises CorruptBatchError if the last batch is
        incomplete."""
        following, end = self.base_offset, self.offset_index.last_position
        for position, header in walk_headers(self.file(), end, self.size):
            following, end = header.next_offset, position + header.size
        if end != self.size:
            raise CorruptBatchError(f"{self.file_path(names.LOG)} ends inside a batch, at byte {end} of {self.size}")
        return following

    def read_batch(self, file: File, position: int, header: BatchHeader) -> bytes:
        """Read one batch and check its CRC. Raises CorruptBatchError."""
        data = file.read_at(position, header.size)
        if len(data) < header.size:
            raise CorruptBatchError(f"{file.path} ends inside the batch at byte {position}")
        check_crc(data, 0, header)
        return data
