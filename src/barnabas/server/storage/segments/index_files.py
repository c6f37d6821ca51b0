"""Shell: reading and writing index files."""

from __future__ import annotations

from barnabas.server.storage.errors import CorruptIndexError
from barnabas.server.storage.fs import Access, FileSystem
from barnabas.server.storage.segments.indexes import SparseIndex, TimeIndex
from barnabas.server.storage.values import TimestampOffset


def write_index(fs: FileSystem, path: str, index: SparseIndex, *, only_if_filled: bool = False) -> bool:
    """Append the entries that the file lacks, and truncate those that the index no longer has. Returns False if the
    file was up to date."""
    count = len(index)
    exists = fs.exists(path)
    if only_if_filled and not count and not exists:
        return False
    file = fs.open(path, Access.WRITE)
    try:
        held = file.size()
        size = count * index.ENTRY_SIZE
        if exists and held == size and index.written == count:
            return False
        if index.written < count:
            file.write_at(index.written * index.ENTRY_SIZE, (index.encode(index.written),))
        if held > size:
            file.truncate(size)
        index.written = count
        return True
    finally:
        file.close()


def read_last_time_entry(fs: FileSystem, path: str, base_offset: int) -> TimestampOffset:
    """The largest timestamp of a closed segment, read from the end of its time index.

    Raises FileMissingError, and CorruptIndexError if the file does not end in a valid entry.
    """
    file = fs.open(path, Access.READ)
    try:
        size = file.size()
        tail = file.read_at(max(size - TimeIndex.ENTRY_SIZE, 0), TimeIndex.ENTRY_SIZE)
    finally:
        file.close()
    last = TimeIndex.decode(base_offset, tail).last_entry
    if size % TimeIndex.ENTRY_SIZE or (size and last.timestamp <= 0):  # torn, or preallocated and not trimmed
        raise CorruptIndexError(f"{path} does not end in an entry")
    return last
