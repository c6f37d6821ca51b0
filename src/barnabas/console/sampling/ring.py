"""Machine: the samples of the last hour in a ring of fixed size. Time is an argument, in milliseconds.

A series is named by a tuple, for example ("topic", "orders", "end_offset"). A series that was not sampled has the value
NaN at that time, which a chart draws as a gap.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import isnan, nan

SeriesName = tuple[str, ...]
Point = tuple[int, float]
"""(time in milliseconds since 1970, value)."""


class SampleRing:
    """Keeps the newest `samples` samples of at most `series` series."""

    def __init__(self, samples: int, series: int) -> None:
        assert samples > 1 and series > 0
        self._size = samples
        self._series_max = series
        self._times = array("q", [0] * samples)
        self._count = 0
        self._series: dict[SeriesName, array[float]] = {}
        self._last_seen: dict[SeriesName, int] = {}

    @property
    def refused(self) -> bool:
        """Whether a series was left out, because there are too many."""
        return len(self._series) >= self._series_max

    def add(self, now_ms: int, values: Mapping[SeriesName, float]) -> None:
        """Add a sample of all series. The oldest sample is overwritten, and a series without any value is removed."""
        place = self._count % self._size
        self._times[place] = now_ms
        for series in self._series.values():
            series[place] = nan
        for name, value in values.items():
            if name not in self._series:
                if len(self._series) >= self._series_max:
                    continue
                self._series[name] = array("d", [nan] * self._size)
            self._series[name][place] = value
            self._last_seen[name] = self._count
        self._count += 1
        if place == 0:
            self._forget()

    def _forget(self) -> None:
        for name in [n for n, seen in self._last_seen.items() if self._count - seen > self._size]:
            del self._series[name], self._last_seen[name]

    def points(self, name: SeriesName) -> list[Point]:
        """The samples of a series, oldest first, with NaN for gaps; empty for an unknown series."""
        series = self._series.get(name)
        return [] if series is None else [(self._times[i], series[i]) for i in self._places()]

    def last(self, name: SeriesName) -> float | None:
        """The newest value that is not a gap, of the last three samples."""
        for _, value in reversed(self.points(name)[-3:]):
            if not isnan(value):
                return value
        return None

    def rates(self, name: SeriesName) -> list[Point]:
        """The growth per second between samples. A value that has fallen (a topic was deleted and created again) is a
        gap.
        """
        return list(_rates(self.points(name)))

    def rate(self, name: SeriesName) -> float | None:
        """The growth per second over the last minute; None with fewer than two samples."""
        points = [point for point in self.points(name)[-8:] if not isnan(point[1])]
        points = [point for point in points if points[-1][0] - point[0] <= 60_000]
        if len(points) < 2 or points[-1][1] < points[0][1]:
            return None
        return (points[-1][1] - points[0][1]) * 1000.0 / max(points[-1][0] - points[0][0], 1)

    def _places(self) -> Iterator[int]:
        first = max(0, self._count - self._size)
        return (number % self._size for number in range(first, self._count))


def _rates(points: list[Point]) -> Iterator[Point]:
    for (before_ms, before), (now_ms, now) in pairwise(points):
        grown = now - before
        valid = not isnan(grown) and grown >= 0 and now_ms > before_ms
        yield now_ms, grown * 1000.0 / (now_ms - before_ms) if valid else nan
