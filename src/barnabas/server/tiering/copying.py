"""Machine: which closed segments the leader copies next.

A segment is copied when it lies below the last stable offset as a whole: then its records are committed and its
transactions have ended, so the copy never has to change. Segments are copied in order, so that everything below the
highest copied offset is in the object store, or was and has been deleted there.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class ClosedSegment(Struct, frozen=True):
    """A segment of the local log that takes no more records. The active segment is not one."""

    base_offset: int
    next_offset: int
    """The base offset of the following segment."""
    size_bytes: int


def segments_to_copy(
    closed: Sequence[ClosedSegment], highest_copied: int, log_start_offset: int, last_stable_offset: int
) -> list[ClosedSegment]:
    """The segments that are to be copied now, in their order. `closed` is sorted; an empty segment is left out."""
    first = max(highest_copied + 1, log_start_offset)
    return [
        segment
        for segment in closed
        if segment.next_offset > first and segment.next_offset <= last_stable_offset and segment.size_bytes > 0
    ]


class CopyLag(Struct, frozen=True):
    """What is still to be copied (Kafka's RemoteCopyLagBytes and RemoteCopyLagSegments)."""

    size_bytes: int
    segments: int


def copy_lag(closed: Sequence[ClosedSegment], highest_copied: int, log_start_offset: int) -> CopyLag:
    """The closed segments that have not been copied, whether they may be copied now or not."""
    first = max(highest_copied + 1, log_start_offset)
    waiting = [segment.size_bytes for segment in closed if segment.next_offset > first]
    return CopyLag(sum(waiting), len(waiting))
