"""Codec: numbers and times -> the text that pages show."""

from __future__ import annotations

from datetime import UTC, datetime

from barnabas.client.explanations.words import ago, duration, size_text


def size(value: float | None) -> str:
    """`1.5 MiB`; a dash for an unknown size."""
    return "–" if value is None or value < 0 else size_text(int(value))


def count_text(value: float | None) -> str:
    """`12,345`, `1.2 M` from a million on; a dash for an unknown number."""
    if value is None:
        return "–"
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def rate_text(value: float | None) -> str:
    """`1,200/s`."""
    return "–" if value is None else f"{count_text(value)}/s"


def size_rate_text(value: float | None) -> str:
    return "–" if value is None else f"{size(value)}/s"


def moment_text(ms: int | None) -> str:
    """`2026-11-20 10:00:00.123`, in UTC; a dash for an unknown time."""
    if ms is None or ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"
    except (ValueError, OverflowError, OSError):
        return str(ms)


def duration_text(ms: float | None) -> str:
    return "–" if ms is None or ms < 0 else duration(int(ms))


def ago_text(ms: int | None, now_ms: int) -> str:
    return "–" if ms is None or ms < 0 else ago(ms, now_ms)
