"""Value: the segments of a log in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from barnabas.server.storage.segments.segment import Segment


class Segments:
    """The segments of one log, sorted by base offset. The last one is the active segment."""

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
        """The segment with the largest base offset not above `offset`, or None."""
        slot = bisect_right(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def starting_from(self, offset: int) -> list[Segment]:
        """The segment with the largest base offset not above `offset`, and all later ones."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def after(self, segment: Segment) -> Segment | None:
        slot = bisect_right(self._bases, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def add(self, segment: Segment) -> None:
        """Insert a segment. A segment with the same base offset is replaced."""
        slot = bisect_left(self._bases, segment.base_offset)
        if slot < len(self._bases) and self._bases[slot] == segment.base_offset:
            self._segments[slot] = segment
        else:
            self._bases.insert(slot, segment.base_offset)
            self._segments.insert(slot, segment)

    def remove(self, segment: Segment) -> None:
        """Remove a segment. Raises ValueError if the log does not contain the segment."""
        if segment not in self:
            raise ValueError(f"{segment} is not among the segments")
        slot = bisect_left(self._bases, segment.base_offset)
        del self._bases[slot], self._segments[slot]
