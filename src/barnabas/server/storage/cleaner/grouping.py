"""Machine: which neighbouring segments become one (Kafka's Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

_INT32_MAX: Final = (1 << 31) - 1


class Sizes(Struct, frozen=True):
    """What a segment's files take, in bytes, and where the next one begins."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int
    next_base: int


def group_segments(segments: Sequence[Sizes], segment_bytes: int, index_bytes: int) -> list[list[Sizes]]:
    """Consecutive segments whose logs, and each kind of index, together keep the limits, and whose offsets fit 32 bits.

    A compacted segment is small; without grouping, a log would end as very many tiny files.
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
