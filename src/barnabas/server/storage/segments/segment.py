"""Shell: one segment: a `.log` file with its three indexes (`segment_files.py`): appends and look-ups.

Batches are appended to the active segment, which is the last one. All others are sealed and never change; compaction
replaces them as a whole.

The active segment keeps the positions of its latest batches in memory, so that consumers near the end of the log are
served without a look-up in a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
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
from barnabas.server.storage.fs import Access, File, read_file
from barnabas.server.storage.segments.batches import ReadableFile, walk_headers
from barnabas.server.storage.segments.index_files import read_last_time_entry
from barnabas.server.storage.segments.indexes import TimeIndex
from barnabas.server.storage.segments.recent_batches import RecentBatches
from barnabas.server.storage.segments.segment_files import SegmentFiles
from barnabas.server.storage.values import TimestampOffset

log = get_logger("barnabas.server.storage")

_INT32_MAX: Final = (1 << 31) - 1


class Found(NamedTuple):
    """The position and size of a batch in the segment's file."""

    position: int
    size: int


def reaches(base_offset: int, offset: int) -> bool:
    """Whether the relative offset fits the 32 bits of an index entry."""
    return 0 <= offset - base_offset <= _INT32_MAX


class Segment(SegmentFiles):
    """A segment: appends, truncation and look-ups."""

    __slots__ = ()

    # --- indexes

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            try:
                data = read_file(self.fs, self.file_path(names.TIME_INDEX))
                index = TimeIndex.decode(self.base_offset, data)
                if len(index) and index.first_entry.timestamp <= 0:
                    raise CorruptIndexError(f"the time index of {self.base_offset} begins with zeros")  # a lost page
            except (CorruptIndexError, FileMissingError):
                self.rebuild_indexes()
                index = self._time_index
                assert index is not None
            self._time_index = index
        return index

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

    def prepare_append(self, next_offset: int) -> None:
        """Open the file for writing and load the indexes, or rebuild those that `next_offset`, the offset after the
        last batch, shows to be damaged. Needed before the first append to a segment found on disk."""
        self.file(Access.WRITE)
        try:
            self._load_indexes(next_offset)
        except StorageError:
            self.release()  # otherwise it would be `ready`, and an index could fail to open after the next write
            raise
        self._bytes_since_index = self.size - self.offset_index.last_position

    def _load_indexes(self, next_offset: int) -> None:
        try:
            last = max(self.offset_index.last_offset, self.time_index.last_entry.offset)
            # no later entry could be added, or the entries are those of batches that have been truncated
            if last >= next_offset if self.size else len(self.offset_index) or len(self.time_index):
                raise CorruptIndexError(f"the indexes of {self.base_offset} have offset {last}")
            _ = self.max_timestamp
        except (CorruptIndexError, FileMissingError):
            self.rebuild_indexes()
        aborted = self.txn_index
        if len(aborted) and aborted.txns[-1].last_offset >= next_offset:  # truncated, and the file was not written
            aborted.truncate_to(next_offset)
            aborted.written = 0
            self.fs.unlink(self.file_path(names.TXN_INDEX))

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
        self._damage = ""
        return self.write_indexes()

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that contains `offset` and all later ones. Returns the number of bytes removed."""
        found = self.find(offset)
        if self._offset_index is None:  # it was damaged, and `find` has dropped it
            self.rebuild_indexes()
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
        for _, header in self._walk_from_index(self.file(), last.offset):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset
        try:
            self.write_indexes()
        except DescriptorsExhaustedError:
            self._unlink_long_indexes()
        return dropped

    def _unlink_long_indexes(self) -> None:
        """Delete the index files, which have entries of truncated batches. This needs no descriptor. The indexes stay
        in memory until they are written."""
        self.unlink_indexes()
        for index in (self._offset_index, self._time_index, self._txn_index):
            assert index is not None
            index.written = 0

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

        For a sealed segment this is safe in any thread, if `file` is its open file: a damaged index is passed over, and
        `delete_damaged_index` deletes it. The loop may have truncated the log since, so that the segment is the active
        one.
        """
        tail = self._tail
        if tail.covers(offset):
            known = tail.find(offset, self._size)
            return None if known is None else Found(*known)
        for position, header in self._walk_from_index(file or self.file(), offset, drop=file is None):
            if header.last_offset >= offset:
                return Found(position, header.size)
        return None

    def _walk_from_index(
        self, source: ReadableFile, offset: int, *, drop: bool = True
    ) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from the last index entry on that is not above `offset`. If that entry
        does not name a batch, the index is damaged, and the walk begins at the start of the segment. `drop` deletes the
        damaged index, which only the event loop may do."""
        indexed, start = self._lookup_entry(offset, drop=drop)
        if start:
            walk = walk_headers(source, start, self.size)
            try:
                first = next(walk, None)
            except CorruptBatchError:
                first = None
            if first is not None and first[1].last_offset == indexed:
                yield first
                yield from walk
                return
            self._on_damaged_index(f"its entry for offset {indexed} does not point to the end of a batch", drop=drop)
        yield from walk_headers(source, 0, self.size)

    def delete_damaged_index(self) -> None:
        """Delete the offset index if `find` has found damage in another thread. The segment must be sealed."""
        if self._damage:
            self._drop_damaged_index(self._damage)

    def _on_damaged_index(self, reason: str, *, drop: bool) -> None:
        if drop:
            self._drop_damaged_index(reason)
        else:
            self._damage = reason

    def _drop_damaged_index(self, reason: str) -> None:
        """Without the file, look-ups begin at the start of the segment; the next start, or append, rebuilds the
        index."""
        path = self.file_path(names.OFFSET_INDEX)
        log.warning("a damaged offset index was deleted; it will be rebuilt", file=path, reason=reason)
        self._offset_index = None
        self._damage = ""
        self.fs.unlink(path)

    def lookup(self, offset: int) -> int:
        """The position of the first batch whose last offset is not below `offset`; the segment's size without one."""
        found = self.find(offset)
        return self.size if found is None else found.position

    def _lookup_entry(self, offset: int, *, drop: bool) -> tuple[int, int]:
        try:
            return self.offset_index.lookup_entry(offset)
        except CorruptIndexError as error:
            self._on_damaged_index(str(error), drop=drop)
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
