"""Value: the segments of many logs that have an open file; their number is bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class ReleasableSegment(Protocol):
    """A segment, as `OpenSegments` needs it."""

    used: bool
    """Whether the file was used since `OpenSegments` last looked for a file to close."""

    def release(self) -> None:
        """Close the file. It is opened again when it is needed."""
        ...


class OpenSegments:
    """The segments with an open file, of all logs that share this object. Their number is bounded.

    A segment joins when it opens its file. If there are too many, one that has not been used since the last round
    closes its file (the CLOCK algorithm); it opens the file again when it is used. Readers and flushes that hold the
    file keep it open until they end. Used on one thread, the event loop.

    A closed file may have bytes that are not on the disk yet. An error when the kernel writes them later is reported to
    the first fsync of a descriptor that is opened afterwards (Linux since 4.17), so a later flush does not miss it.
    """

    __slots__ = ("_open", "capacity", "closed")

    def __init__(self, capacity: int = 256) -> None:
        self.capacity = capacity
        self.closed = 0
        """The number of files closed so far to stay within the capacity. For metrics."""
        self._open: OrderedDict[int, ReleasableSegment] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, segment: ReleasableSegment) -> None:
        """Count a segment that has opened its file, and close others if there are too many."""
        self._open[id(segment)] = segment
        if len(self._open) > self.capacity:
            self.close_some(len(self._open) - self.capacity, spared=segment)

    def forget(self, segment: ReleasableSegment) -> None:
        """Stop counting a segment whose file was closed."""
        self._open.pop(id(segment), None)

    def close_some(self, count: int, *, spared: ReleasableSegment | None = None) -> int:
        """Close the files of `count` segments, those that have not been used for some time first. Returns the number of
        files that were closed."""
        left = count
        chances = len(self._open)
        while left > 0 and len(self._open) > (spared is not None):
            key, segment = self._open.popitem(last=False)
            if segment is spared or (segment.used and chances > 0):
                chances -= 1
                segment.used = False
                self._open[key] = segment
                continue
            segment.release()
            left -= 1
        self.closed += count - left
        return count - left
