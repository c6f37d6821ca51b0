"""Machine: the groups of adjacent segments that compaction merges (Kafka's Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

_INT32_MAX: Final = (1 << 31) - 1


class Sizes(Struct, frozen=True):
    """The sizes of a segment's files in bytes, and the base offset of the next segment."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int
    next_base: int


def group_segments(segments: Sequence[Sizes], segment_bytes: int, index_bytes: int) -> list[list[Sizes]]:
    """Group adjacent segments whose log files and indexes together are within the limits, and whose offsets fit 32
    bits.

    Without grouping, a compacted log would consist of very many small files.
    """
    groups: list[list[Sizes]] = []
    log = offsets = times = 0
    for segment in segments:
        if (
            groups
            and log + segment.log <= segment_bytes
            and offsets + segment.offset_index <= index_bytes
            and times + segment.time_index <= index_bytes
            and (not segment.log or segment.next_base - 1 - groups[-1][0].base_offset <= _INT32_MAX)
        ):
            groups[-1].append(segment)
            log, offsets, times = log + segment.log, offsets + segment.offset_index, times + segment.time_index
        else:
            groups.append([segment])
            log, offsets, times = segment.log, segment.offset_index, segment.time_index
    return groups
