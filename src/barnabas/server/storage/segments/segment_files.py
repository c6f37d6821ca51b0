"""Shell: the files of one segment: the log file and its indexes, which are opened when they are needed.

`cool()` closes the files again, so that thousands of idle partitions need no descriptors. `size` is the number of bytes
of the log file that belong to the log.
"""

from __future__ import annotations

import contextlib
from typing import Final, Self

from barnabas.server.storage import names
from barnabas.server.storage.errors import FileMissingError
from barnabas.server.storage.fs import Access, File, FileSystem, read_file
from barnabas.server.storage.segments.index_files import write_index
from barnabas.server.storage.segments.indexes import OffsetIndex, SparseIndex, TimeIndex
from barnabas.server.storage.segments.open_segments import OpenSegments
from barnabas.server.storage.segments.recent_batches import RecentBatches
from barnabas.server.storage.segments.txn_index import TxnIndex

UNKNOWN_SIZE: Final = -1


class SegmentFiles:
    """The files of a segment, named by `base_offset`, which is not larger than the offset of the first batch."""

    __slots__ = (
        "_bytes_since_index",
        "_damage",
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
        self._damage = ""
        """What a thread has found to be wrong with the offset index, which only the event loop may delete."""
        self._tail = RecentBatches()

    def create(self) -> Self:
        """Create the files of this segment, which is then empty, and return the segment. Files that a failed attempt
        has left under the same names are emptied."""
        for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX):
            self.fs.unlink(self.file_path(kind))
        self._file = self.fs.open(self.file_path(names.LOG), Access.REPLACE)
        self._writable = True
        self._size = 0
        self.reset_indexes()
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_offset}{self.suffix}, {self._size} bytes)"

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
        """Delete the index files. The indexes in memory must be empty, or be written later."""
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
            loaded = OffsetIndex.decode(self.base_offset, data, self.size)
            index = self._offset_index  # the loop may have loaded and truncated it while this thread read the file
            if index is None:
                index = self._offset_index = loaded
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
