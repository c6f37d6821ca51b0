"""Machine: divides ranges of offsets among tasks.

By default, Spark's own connector creates one task per partition, so that one long partition keeps one core busy while
others are idle. Here a range is split, by default, into pieces of at most about 64 MB of log. Ranges are split between
any two offsets without reading the log. A task whose range begins inside a record batch reads the whole batch and drops
the records before its range, which costs little compared to megabytes.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from math import ceil

from barnabas.core.ids import TopicPartition
from barnabas.spark.source.options import Splitting
from barnabas.spark.source.planner import PartitionRange


def split_ranges(
    ranges: Iterable[PartitionRange],
    splitting: Splitting,
    bytes_per_offset: Mapping[TopicPartition, float] | None = None,
) -> list[PartitionRange]:
    """One range per task, sorted by partition and offset. Together they cover exactly the given ranges."""
    density = bytes_per_offset or {}
    whole = [r for r in ranges if r.size > 0]
    pieces = [_pieces_by_size(r, splitting, density.get(r.tp, 0.0)) for r in whole]
    if splitting.min_tasks is not None:
        _split_to_minimum(splitting.min_tasks, whole, pieces)
    return [piece for r, n in zip(whole, pieces, strict=True) for piece in cut(r, n)]


def cut(whole: PartitionRange, pieces: int) -> list[PartitionRange]:
    """Split a range into `pieces` consecutive ranges whose sizes differ by at most one."""
    bounds = [whole.start + whole.size * i // pieces for i in range(pieces + 1)]
    return [PartitionRange(whole.tp, a, b, whole.topic_id) for a, b in itertools.pairwise(bounds)]


def _pieces_by_size(whole: PartitionRange, splitting: Splitting, bytes_per_offset: float) -> int:
    by_records = ceil(whole.size / splitting.max_records) if splitting.max_records is not None else 1
    by_bytes = ceil(whole.size * bytes_per_offset / splitting.max_bytes)
    return min(whole.size, max(1, by_records, by_bytes))


def _split_to_minimum(min_tasks: int, whole: list[PartitionRange], pieces: list[int]) -> None:
    """Increase `pieces`, the number of pieces of each range in `whole`, until there are `min_tasks` pieces in total or
    each piece is a single offset. Each step adds a piece to the range with the longest pieces.
    """
    longest = [(-r.size / n, i) for i, (r, n) in enumerate(zip(whole, pieces, strict=True))]
    heapq.heapify(longest)
    missing = min_tasks - sum(pieces)
    while missing > 0 and longest:
        _, i = heapq.heappop(longest)
        if pieces[i] < whole[i].size:
            pieces[i] += 1
            missing -= 1
            heapq.heappush(longest, (-whole[i].size / pieces[i], i))
