"""Value: the segments of a log in order, and which of them keep their descriptors open."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from barnabas.server.storage.segments.segment import Segment


class Segments:
    """Sorted by base offset. The last one is active."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda s: s.base_offset)
        self._bases = [s.base_offset for s in self._segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __contains__(self, segment: Segment) -> bool:
        slot = bisect_left(self._bases, segment.base_offset)
        return slot < len(self._bases) and self._segments[slot] is segment

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    def floor(self, offset: int) -> Segment | None:
        """The segment in which `offset` would lie."""
        slot = bisect_right(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def starting_from(self, offset: int) -> list[Segment]:
        """The segment in which `offset` would lie, and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def after(self, segment: Segment) -> Segment | None:
        slot = bisect_right(self._bases, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def add(self, segment: Segment) -> None:
        """Put it in its place; it takes the place of one with the same base offset."""
        slot = bisect_left(self._bases, segment.base_offset)
        if slot < len(self._bases) and self._bases[slot] == segment.base_offset:
            self._segments[slot] = segment
        else:
            self._bases.insert(slot, segment.base_offset)
            self._segments.insert(slot, segment)

    def remove(self, segment: Segment) -> None:
        """Raises ValueError if it is not there."""
        if segment not in self:
            raise ValueError(f"{segment} is not among the segments")
        slot = bisect_left(self._bases, segment.base_offset)
        del self._bases[slot], self._segments[slot]


class WarmSegments:
    """The sealed segments used last, over all logs of a directory; the others hold no descriptor and no index."""

    __slots__ = ("_capacity", "_used")

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._used: OrderedDict[int, Segment] = OrderedDict()

    def touch(self, segment: Segment) -> None:
        """It is about to be read; the one unused for longest is let go."""
        key = id(segment)
        self._used[key] = segment
        self._used.move_to_end(key)
        if len(self._used) > self._capacity:
            self._used.popitem(last=False)[1].cool()

    def forget(self, segment: Segment) -> None:
        self._used.pop(id(segment), None)
