"""Value: a map from consecutive offsets to values, stored as runs of equal values.

    offsets   100 ........ 149 | 150 ... 163 | 164 ........ 199        start 100, end 200 (exclusive)
    values        acknowledged |  acquired   |    available

Runs cover all offsets from `start` to `end`. A change of a range splits runs at its borders and merges adjacent equal
runs. A partition whose records are acquired and acknowledged in batches therefore has few runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class OffsetRuns(Generic[C]):
    """A value for each offset from a start on. `_cells[i]` is the value of the offsets from `_firsts[i]` up to the
    start of the next run."""

    __slots__ = ("_cells", "_firsts", "end")

    def __init__(self, start: int) -> None:
        self._firsts: list[int] = []
        self._cells: list[C] = []
        self.end = start
        """The first offset after the last run."""

    @property
    def start(self) -> int:
        return self._firsts[0] if self._firsts else self.end

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int, C]]:
        """(first, last, value), in ascending order. The map must not change during the iteration."""
        firsts, cells = self._firsts, self._cells
        for i, cell in enumerate(cells):
            yield firsts[i], (firsts[i + 1] if i + 1 < len(firsts) else self.end) - 1, cell

    def within(self, first: int, last: int) -> list[tuple[int, int, C]]:
        """The runs, or parts of runs, between two offsets (inclusive)."""
        firsts, cells = self._firsts, self._cells
        found = []
        i = max(bisect_right(firsts, first) - 1, 0)
        while i < len(firsts) and firsts[i] <= last:
            end = firsts[i + 1] if i + 1 < len(firsts) else self.end
            low, high = max(firsts[i], first), min(end - 1, last)
            if low <= high:
                found.append((low, high, cells[i]))
            i += 1
        return found

    def append(self, last: int, cell: C) -> None:
        """Extend the map from `end` to `last` (inclusive)."""
        assert last >= self.end, "a run is appended at the end"
        if not self._cells or self._cells[-1] != cell:
            self._firsts.append(self.end)
            self._cells.append(cell)
        self.end = last + 1

    def put(self, first: int, last: int, cell: C) -> None:
        """Set the value of all offsets from `first` to `last` (inclusive)."""
        self.change(first, last, lambda _: cell)

    def change(self, first: int, last: int, new: Callable[[C], C]) -> None:
        """Replace each value from `first` to `last` (inclusive) by `new(value)`."""
        assert self.start <= first <= last < self.end, "the range must lie within the map"
        self._split(first)
        self._split(last + 1)
        begin = bisect_right(self._firsts, first) - 1
        end = bisect_right(self._firsts, last)
        for i in range(begin, end):
            self._cells[i] = new(self._cells[i])
        self._merge(max(begin - 1, 0), min(end + 1, len(self._firsts)))

    def drop_below(self, offset: int) -> None:
        """Remove all offsets below `offset`. If `offset` is beyond the end, the map is then empty and starts there."""
        if offset >= self.end:
            self._firsts.clear()
            self._cells.clear()
            self.end = offset
        elif offset > self.start:
            self._split(offset)
            i = bisect_right(self._firsts, offset) - 1
            del self._firsts[:i]
            del self._cells[:i]

    def _split(self, offset: int) -> None:
        """Split the run that contains `offset`, so that a run starts at `offset`."""
        if self.start < offset < self.end:
            i = bisect_right(self._firsts, offset) - 1
            if self._firsts[i] != offset:
                self._firsts.insert(i + 1, offset)
                self._cells.insert(i + 1, self._cells[i])

    def _merge(self, begin: int, end: int) -> None:
        firsts, cells = [self._firsts[begin]], [self._cells[begin]]
        for i in range(begin + 1, end):
            if self._cells[i] != cells[-1]:
                firsts.append(self._firsts[i])
                cells.append(self._cells[i])
        self._firsts[begin:end] = firsts
        self._cells[begin:end] = cells
