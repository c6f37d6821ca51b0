"""Codec: points of series -> what a chart draws: scaled lines, axis labels, and the newest value.

The macro `chart` of `macros.html` turns a `Chart` into inline SVG without styles of its own, so that the content
security policy needs no exception and both colour schemes apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan, log, log10
from typing import Final

from barnabas.console.sampling.ring import Point

WIDTH: Final = 600
HEIGHT: Final = 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 22
_TICKS: Final = 4
_STEPS_MS: Final = (10_000, 30_000, 60_000, 300_000, 600_000, 900_000)


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line: its name, its path, and the area below it."""

    name: str
    path: str
    area: str
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of WIDTH x HEIGHT units. `y_labels` and `x_labels` are (position, text)."""

    title: str
    lines: tuple[ChartLine, ...]
    y_labels: tuple[tuple[float, str], ...]
    x_labels: tuple[tuple[float, str], ...]
    summary: str
    """One sentence for people who do not see the chart."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM

    @property
    def is_empty(self) -> bool:
        return not any(line.path for line in self.lines)


def draw(
    title: str,
    series: Sequence[tuple[str, Sequence[Point]]],
    show: Callable[[float], str],
    *,
    binary: bool = False,
) -> Chart:
    """A chart of named series. `show` turns a value into text with its unit; `binary` rounds to KiB, MiB and so on."""
    known = [value for _, points in series for _, value in points if not isnan(value)]
    times = [time_ms for _, points in series for time_ms, _ in points]
    top = nice_ceiling(max(known, default=0.0), binary=binary)
    first, last = (min(times), max(times)) if times else (0, 1)
    span, step_ms = max(last - first, 1), _step_ms(last - first)

    def x(time_ms: int) -> float:
        return round(_LEFT + (time_ms - first) / span * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(_TOP + (1 - value / top) * (HEIGHT - _TOP - _BOTTOM), 1)

    lines = tuple(_line(name, points, x, y, show) for name, points in series)
    return Chart(
        title,
        lines,
        tuple((y(top * i / _TICKS), show(top * i / _TICKS)) for i in range(_TICKS + 1)),
        tuple((x(at), _clock(at, step_ms)) for at in _moments(first, last, step_ms)) if times else (),
        _summary(title, known, show),
    )


def _line(
    name: str,
    points: Sequence[Point],
    x: Callable[[int], float],
    y: Callable[[float], float],
    show: Callable[[float], str],
) -> ChartLine:
    runs: list[list[Point]] = [[]]
    for point in points:
        if isnan(point[1]):
            runs.append([])
        else:
            runs[-1].append(point)
    path, area = [], []
    for run in filter(None, runs):
        steps = [f"{x(at)},{y(value)}" for at, value in (run if len(run) > 1 else run * 2)]
        path.append("M" + "L".join(steps))
        area.append(f"M{x(run[0][0])},{y(0)}L" + "L".join(steps) + f"L{x(run[-1][0])},{y(0)}Z")
    newest = next((value for _, value in reversed(points) if not isnan(value)), None)
    return ChartLine(name, "".join(path), "".join(area), "" if newest is None else show(newest))


def nice_ceiling(value: float, *, binary: bool = False) -> float:
    """The smallest of 1, 2, 4, 6, 8, 10 times a power of ten that is not below the value; 4 for zero. With
    `binary`, also times a power of 1024.
    """
    if value <= 0:
        return 4.0
    if binary and value >= 1024:
        scale = 1024.0 ** int(log(value, 1024))
        return nice_ceiling(value / scale) * scale
    unit = 10.0 ** int(log10(value) if value >= 1 else log10(value) - 1)
    return next(step * unit for step in (1, 2, 4, 6, 8, 10, 20) if step * unit >= value)


def _step_ms(span_ms: int) -> int:
    """The time between two labels, so that there are at most seven."""
    return next((step for step in _STEPS_MS if span_ms / step <= 6), _STEPS_MS[-1])


def _moments(first: int, last: int, step_ms: int) -> range:
    return range(-(-first // step_ms) * step_ms, last + 1, step_ms)


def _clock(time_ms: int, step_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M" if step_ms >= 60_000 else "%H:%M:%S")


def _summary(title: str, known: Sequence[float], show: Callable[[float], str]) -> str:
    if not known:
        return f"{title}: no samples yet."
    return f"{title}: now {show(known[-1])}, between {show(min(known))} and {show(max(known))} in the time shown."
