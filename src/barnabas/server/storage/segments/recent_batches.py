"""Value: where the latest batches of the active segment lie, one by one.

The sparse index knows one batch in four kilobytes; most readers are at the tail, and for them this knows every batch.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

_BATCHES_MAX: Final = 8192


class RecentBatches:
    """Complete from some offset on, the floor; None while it knows nothing."""

    __slots__ = ("_floor", "_offsets", "_positions")

    def __init__(self) -> None:
        self._floor: int | None = None
        self._offsets: list[int] = []  # last offsets of batches
        self._positions: list[int] = []

    def add(self, base_offset: int, last_offset: int, position: int) -> None:
        """A batch was appended."""
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
        """(position, size) of the first batch that reaches a covered `offset`; the segment ends at byte `end`."""
        positions = self._positions
        slot = bisect_left(self._offsets, offset)
        if slot == len(positions):
            return None
        position = positions[slot]
        following = positions[slot + 1] if slot + 1 < len(positions) else end
        return position, following - position

    def truncate_to(self, offset: int) -> None:
        """Forget the batches that reach `offset`."""
        keep = bisect_left(self._offsets, offset)
        del self._offsets[keep:], self._positions[keep:]
        if self._floor is not None and self._floor >= offset:
            self._floor = None
