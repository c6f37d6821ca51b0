"""Value: the positions of the latest batches of the active segment.

The offset index has one entry for every index.interval.bytes. Most readers read the latest batches, and for these
`RecentBatches` has the position of each batch.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

_BATCHES_MAX: Final = 8192


class RecentBatches:
    """The last offset and position of each batch from the offset `_floor` on. `_floor` is None while there are no
    batches."""

    __slots__ = ("_floor", "_offsets", "_positions")

    def __init__(self) -> None:
        self._floor: int | None = None
        self._offsets: list[int] = []  # last offsets of batches
        self._positions: list[int] = []

    def add(self, base_offset: int, last_offset: int, position: int) -> None:
        """Add a batch that has been appended."""
        if self._floor is None:
            self._floor = base_offset
        offsets = self._offsets
        offsets.append(last_offset)
        self._positions.append(position)
        if len(offsets) > _BATCHES_MAX:
            half = _BATCHES_MAX // 2
            self._floor = offsets[half - 1] + 1
            del offsets[:half], self._positions[:half]

    def covers(self, offset: int) -> bool:
        return self._floor is not None and offset >= self._floor

    def find(self, offset: int, end: int) -> tuple[int, int] | None:
        """(position, size) of the first batch whose last offset is not below `offset`, or None if there is none.

        Call this only if `covers(offset)` is True. `end` is the size of the segment.
        """
        positions = self._positions
        slot = bisect_left(self._offsets, offset)
        if slot == len(positions):
            return None
        position = positions[slot]
        following = positions[slot + 1] if slot + 1 < len(positions) else end
        return position, following - position

    def truncate_to(self, offset: int) -> None:
        """Remove the batches whose last offset is not below `offset`."""
        keep = bisect_left(self._offsets, offset)
        del self._offsets[keep:], self._positions[keep:]
        if self._floor is not None and self._floor >= offset:
            self._floor = None
