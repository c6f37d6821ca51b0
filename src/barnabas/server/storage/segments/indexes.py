"""Codec and Value: the offset index and the time index of a segment, in memory and in Kafka's file formats.

    .index      { relativeOffset int32 | position int32 } *           8 bytes an entry (Kafka's OffsetIndex)
    .timeindex  { timestamp int64 | relativeOffset int32 } *         12 bytes an entry (Kafka's TimeIndex)

Numbers are big-endian, and offsets are relative to the segment's base offset. An entry of the offset index contains the
last offset of a batch and the position of that batch. An entry of the time index states that no record up to its offset
has a larger timestamp. Offsets and timestamps strictly increase. An entry is added for each index.interval.bytes of
log.

In memory, an index is two parallel arrays, which are searched by bisection. The entries are written to the file when
the segment rolls, is flushed or is closed, so that an append needs no system call for the indexes. After a crash before
that, recovery rebuilds the indexes. Kafka preallocates the files of the active segment and trims them later, so a file
may end in zeros.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import gt, lt
from typing import ClassVar, Protocol

from barnabas.server.storage.errors import CorruptIndexError
from barnabas.server.storage.values import TimestampOffset

_INT32_MAX = (1 << 31) - 1
_SWAP = sys.byteorder == "little"


class SparseIndex(Protocol):
    """An index as `write_index` needs it."""

    ENTRY_SIZE: ClassVar[int]
    written: int
    """The number of leading entries that the file contains already."""

    def __len__(self) -> int: ...

    def encode(self, start: int = 0) -> bytes: ...


def _increases(values: array[int]) -> bool:
    return all(map(lt, values, values[1:]))


class OffsetIndex:
    """Maps the last offsets of some batches to the batches' positions in the segment."""

    ENTRY_SIZE: ClassVar[int] = 8
    __slots__ = ("_positions", "_relative", "base_offset", "written")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.written = 0
        self._relative = array("I")
        self._positions = array("I")

    @classmethod
    def decode(cls, base_offset: int, data: bytes, log_size: int) -> OffsetIndex:
        """The index in the bytes of an `.index` file. Raises CorruptIndexError unless every entry can belong to a
        segment of `log_size` bytes."""
        if len(data) % cls.ENTRY_SIZE:
            raise CorruptIndexError(f"offset index of {base_offset} has {len(data)} bytes, no multiple of 8")
        both = array("I")
        both.frombytes(data)
        if _SWAP:
            both.byteswap()
        index = cls(base_offset)
        index._relative, index._positions = both[0::2], both[1::2]
        index.written = len(index)
        # No entry has position 0, so a zero is preallocated space that has not been trimmed.
        if index._positions and not (0 < index._positions[0] <= index._positions[-1] < max(log_size, 1)):
            raise CorruptIndexError(f"offset index of {base_offset} points outside its segment of {log_size} bytes")
        if not (_increases(index._relative) and _increases(index._positions)):
            raise CorruptIndexError(f"offset index of {base_offset} does not increase")
        return index

    def __len__(self) -> int:
        return len(self._relative)

    def append(self, offset: int, position: int) -> None:
        relative, known = offset - self.base_offset, self._relative
        if not 0 <= relative <= _INT32_MAX or (known and relative <= known[-1]):
            raise CorruptIndexError(f"offset {offset} cannot follow in the index of {self.base_offset}")
        known.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that contains `offset`: that of the largest entry not above `offset`, or
        0."""
        return self.lookup_entry(offset)[1]

    def lookup_entry(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of the batch of the largest entry not above `offset`; (-1, 0) without such an
        entry."""
        slot = bisect_right(self._relative, max(offset - self.base_offset, 0)) - 1 if self._relative else -1
        return (self.base_offset + self._relative[slot], self._positions[slot]) if slot >= 0 else (-1, 0)

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; -1 without entries."""
        return self.base_offset + self._relative[-1] if self._relative else -1

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position) of every entry."""
        return [(self.base_offset + r, p) for r, p in zip(self._relative, self._positions, strict=True)]

    def truncate_to(self, offset: int) -> None:
        """Keep the entries below `offset`."""
        slot = bisect_left(self._relative, max(offset - self.base_offset, 0))
        del self._relative[slot:], self._positions[slot:]
        self.written = min(self.written, slot)

    def encode(self, start: int = 0) -> bytes:
        both = array("I", bytes(8 * (len(self) - start)))
        both[0::2], both[1::2] = self._relative[start:], self._positions[start:]
        if _SWAP:
            both.byteswap()
        return both.tobytes()


class TimeIndex:
    """Maps the largest timestamps so far to the last offsets of the batches that contain them."""

    ENTRY_SIZE: ClassVar[int] = 12
    __slots__ = ("_relative", "_timestamps", "base_offset", "written")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.written = 0
        self._timestamps = array("q")
        self._relative = array("I")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex:
        """The index in the bytes of a `.timeindex` file. Raises CorruptIndexError for a torn or decreasing index."""
        if len(data) % cls.ENTRY_SIZE:
            raise CorruptIndexError(f"time index of {base_offset} has {len(data)} bytes, no multiple of 12")
        words = array("I")
        words.frombytes(data)
        if _SWAP:
            words.byteswap()
        index = cls(base_offset)
        halves = array("I", bytes(8 * (len(words) // 3)))
        # an int64 in native order: low word first on little-endian machines
        halves[0::2], halves[1::2] = (words[1::3], words[0::3]) if _SWAP else (words[0::3], words[1::3])
        index._timestamps.frombytes(halves.tobytes())
        index._relative = words[2::3]
        index.written = len(index)
        if not _increases(index._timestamps) or any(map(gt, index._relative, index._relative[1:])):
            raise CorruptIndexError(f"time index of {base_offset} does not increase")
        return index

    def __len__(self) -> int:
        return len(self._timestamps)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than that of the last entry (Kafka's TimeIndex.maybeAppend)."""
        if timestamp < 0 or (self._timestamps and timestamp <= self._timestamps[-1]):
            return
        relative = offset - self.base_offset
        if not 0 <= relative <= _INT32_MAX or (self._relative and relative < self._relative[-1]):
            raise CorruptIndexError(f"offset {offset} cannot follow in the time index of {self.base_offset}")
        self._timestamps.append(timestamp)
        self._relative.append(relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose timestamp is not larger than `timestamp`, or (-1, base offset)."""
        slot = bisect_right(self._timestamps, timestamp) - 1
        return self._entry(slot) if slot >= 0 else TimestampOffset(-1, self.base_offset)

    @property
    def first_entry(self) -> TimestampOffset:
        """The first entry. The index must have one."""
        return self._entry(0)

    @property
    def last_entry(self) -> TimestampOffset:
        return self._entry(len(self._timestamps) - 1) if self._timestamps else TimestampOffset(-1, self.base_offset)

    def _entry(self, slot: int) -> TimestampOffset:
        return TimestampOffset(self._timestamps[slot], self.base_offset + self._relative[slot])

    def entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of every entry."""
        return [(t, self.base_offset + r) for t, r in zip(self._timestamps, self._relative, strict=True)]

    def truncate_to(self, offset: int) -> None:
        """Keep the entries whose offset lies below `offset`."""
        slot = bisect_left(self._relative, max(offset - self.base_offset, 0))
        del self._timestamps[slot:], self._relative[slot:]
        self.written = min(self.written, slot)

    def encode(self, start: int = 0) -> bytes:
        count = len(self) - start
        halves = array("I")
        halves.frombytes(self._timestamps[start:].tobytes())
        words = array("I", bytes(12 * count))
        words[0::3], words[1::3] = (halves[1::2], halves[0::2]) if _SWAP else (halves[0::2], halves[1::2])
        words[2::3] = self._relative[start:]
        if _SWAP:
            words.byteswap()
        return words.tobytes()
