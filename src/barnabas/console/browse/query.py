"""Codec: the query string of the message browser -> what to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.client.admin.offset_resets import parse_duration_ms, parse_time_ms
from barnabas.client.values import IsolationLevel
from barnabas.console.browse.decoding import FORMATS
from barnabas.console.browse.filters import Filter, parse_filter
from barnabas.console.errors import BadInputError

_TIME_MS_MAX = (1 << 63) - 1
STARTS = ("newest", "oldest", "offset", "time", "positions", "live")


@dataclass(frozen=True, slots=True)
class BrowseQuery:
    """What to read. `start` is one of STARTS; `offset` and `time_ms` belong to the starts of these names."""

    start: str = "newest"
    partitions: tuple[int, ...] = ()
    """The partitions to read; empty for all partitions."""
    offset: int = 0
    time_ms: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)
    """The first offset to read of each partition (`start=positions`, the link to the next records)."""
    before: Mapping[int, int] = field(default_factory=dict)
    """For each partition the offset before which to read (the link from the newest to older records)."""
    limit: int = 50
    key: str = ""
    """Only records whose key has this text."""
    search: str = ""
    filter: Filter | None = None
    key_format: str = "auto"
    value_format: str = "auto"
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


def parse_query(given: Mapping[str, str], *, limit_max: int, now_ms: int) -> BrowseQuery:
    """Raises BadInputError that says which field is wrong."""
    start = given.get("start") or "newest"
    if start not in STARTS:
        raise BadInputError(f"start is one of {', '.join(STARTS)}, not {start!r}.")
    at = given.get("at", "").strip()
    offset, time_ms = 0, 0
    if start == "offset":
        offset = _number("at", at or "0")
    elif start == "time":
        time_ms = _time(at, now_ms)
    search = given.get("search", "").strip()
    key_format, value_format = (given.get(name) or "auto" for name in ("key_format", "value_format"))
    for name in (key_format, value_format):
        if name not in FORMATS:
            raise BadInputError(f"A format is one of {', '.join(FORMATS)}, not {name!r}.")
    return BrowseQuery(
        start=start,
        partitions=_partitions(given.get("partitions", "")),
        offset=offset,
        time_ms=time_ms,
        positions=_positions(given.get("positions", "")) if start == "positions" else {},
        before=_positions(given.get("before", "")),
        limit=min(max(_number("limit", given.get("limit") or "50"), 1), limit_max),
        key=given.get("key", ""),
        search=search,
        filter=parse_filter(search) if search else None,
        key_format=key_format,
        value_format=value_format,
        isolation=IsolationLevel.READ_COMMITTED if given.get("committed") else IsolationLevel.READ_UNCOMMITTED,
    )


def positions_text(positions: Mapping[int, int]) -> str:
    """The text that `positions` has in a link."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise BadInputError(f"{name} is a number of at least 0, not {text!r}.")
    return int(text)


def _time(text: str, now_ms: int) -> int:
    try:
        if text.startswith("P"):
            return max(now_ms - parse_duration_ms(text), 0)
        return min(int(text) if text.isdecimal() else max(parse_time_ms(text), 0), _TIME_MS_MAX)
    except (ValueError, OverflowError):
        raise BadInputError(
            f"{text!r} is not a time: write 2026-11-20T10:00, in UTC, or a duration before now such as PT15M."
        ) from None


def _partitions(text: str) -> tuple[int, ...]:
    return tuple(sorted({_number("partitions", part.strip()) for part in text.split(",") if part.strip()}))


def _positions(text: str) -> dict[int, int]:
    pairs = [part.partition(":") for part in text.split(",") if part]
    return {_number("positions", partition): _number("positions", offset) for partition, _, offset in pairs}
