"""Codec: durations, times, sizes and counts -> the text in which people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def duration(ms: int) -> str:
    """A duration in its two largest units: `3 min 20 s`, `2 d 4 h`, `250 ms`."""
    if ms < 1_000:
        return f"{max(ms, 0)} ms"
    for place, (size, unit) in enumerate(_UNITS):
        count, rest = divmod(ms, size)
        if count:
            smaller, name = _UNITS[place + 1] if place + 1 < len(_UNITS) else (ms + 1, "")
            more = rest // smaller
            return f"{count} {unit}" + (f" {more} {name}" if more else "")
    raise AssertionError("a duration of a second or more has a unit")


def ago(then_ms: int, now_ms: int) -> str:
    """`3 min 20 s ago`. A time in the future, from a clock that is ahead, is printed as now."""
    return f"{duration(now_ms - then_ms)} ago"


def moment(ms: int) -> str:
    """A time in UTC: `2026-11-20 10:00:00 UTC`."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rate(records: int, seconds: float) -> str:
    """`12,000 records/s`; slow rates have two digits."""
    each = records / seconds
    return f"{each:,.0f} records/s" if each >= 10 or not each else f"{each:.2g} records/s"


def percent(ratio: float) -> str:
    return f"{ratio * 100:.3g} %"


def size_text(size: int) -> str:
    """A number of bytes with a unit, such as `1.5 MiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")
