"""Value: quantiles of the last minutes, from the counts of a histogram that only grow.

The quantiles of all values since a node started would hardly move after a day. `RecentCounts` remembers the counts at
some earlier readings of the page of metrics, and takes the quantiles of what was added since the oldest of them, which
is at most five minutes and two readings old. Kafka's histograms also favour the last five minutes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
WINDOW_S: Final = 300.0
_STEP_S: Final = 30.0
_VALUES: Final = tuple(float(quantile) for quantile in QUANTILES)


class RecentCounts:
    """The earlier counts of one histogram. The first count is for zeros, the others are for the buckets of `bounds`
    and for larger values."""

    __slots__ = ("_bounds", "_earlier", "_now")

    def __init__(self, bounds: Sequence[float], now: Callable[[], float] = time.monotonic) -> None:
        self._bounds = (0.0, *bounds)
        self._earlier: deque[tuple[float, list[int]]] = deque()
        self._now = now

    def quantiles(self, counts: list[int]) -> list[float]:
        """The quantiles `QUANTILES` of the recent values. Values are taken as spread evenly within their bucket, and
        values above all bounds as equal to the largest bound. 0 if there are no recent values."""
        now, earlier = self._now(), self._earlier
        while len(earlier) > 1 and now - earlier[1][0] >= WINDOW_S:
            earlier.popleft()
        recent = counts
        if earlier:
            recent = [new - old for new, old in zip(counts, earlier[0][1], strict=True)]
        if not earlier or now - earlier[-1][0] >= _STEP_S:
            earlier.append((now, counts))
        return self._of(recent)

    def _of(self, counts: Sequence[int]) -> list[float]:
        total = sum(counts)
        if total <= 0:
            return [0.0] * len(_VALUES)
        found: list[float] = []
        bounds = self._bounds
        place, below = 0, 0
        for quantile in _VALUES:
            rank = quantile * total
            while place < len(counts) - 1 and below + counts[place] < rank:
                below += counts[place]
                place += 1
            if place == 0:
                found.append(0.0)
            elif place >= len(bounds):
                found.append(bounds[-1])
            else:
                low, high = bounds[place - 1], bounds[place]
                share = (rank - below) / counts[place] if counts[place] else 1.0
                found.append(round(low + (high - low) * share, 4))
        return found
