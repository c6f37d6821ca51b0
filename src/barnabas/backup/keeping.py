"""Machine: which runs are kept, and which objects no run needs any more.

A run under way has written objects that no manifest names yet. Objects of a run that is not known to be complete are
deleted only once that run began longer ago than `leftovers_ms`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from barnabas.backup.errors import NoSuchRunError
from barnabas.backup.manifest import run_time_ms, writer_of

LEFTOVERS_MS: Final = 24 * 3600 * 1000
_NUMBER: Final = re.compile(r"\d{10,}")


def choose_run(runs: Sequence[str], at: str | None) -> str:
    """The run with the id `at`, or the newest that had begun at the time `at` (ISO 8601, or milliseconds since 1970);
    without `at`, the newest. Raises NoSuchRunError, ValueError."""
    ordered = sorted(runs)
    if not ordered:
        raise NoSuchRunError("The backup has no complete run. `barnabas backup run` makes one.")
    if at is None:
        return ordered[-1]
    if at in ordered:
        return at
    try:
        run_time_ms(at)
    except ValueError:
        time_ms = parse_time(at)
    else:
        raise NoSuchRunError(f"The backup has no run {at}. `barnabas backup list` shows the runs.")
    before = [run_id for run_id in ordered if run_time_ms(run_id) <= time_ms]
    if not before:
        raise NoSuchRunError(f"The oldest run, {ordered[0]}, is later than {at}.")
    return before[-1]


def parse_time(text: str) -> int:
    """Milliseconds since 1970. A time without a zone is UTC. Raises ValueError."""
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a run nor a time. Write the id of a run, a time like 2026-11-24T03:15:00Z, or "
            "milliseconds since 1970."
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


class Retention(Struct, frozen=True):
    """Keep the newest `last` runs, and all that are younger than `age_ms`. The newest run is always kept."""

    last: int | None = None
    age_ms: int | None = None


def runs_to_drop(runs: Iterable[str], retention: Retention, now_ms: int) -> list[str]:
    """The runs that the retention does not keep, oldest first. A limit of None keeps no run;
    without any limit, every run is kept."""
    if retention.last is None and retention.age_ms is None:
        return []
    newest_first = sorted(runs, reverse=True)
    dropped = [
        run_id
        for place, run_id in enumerate(newest_first)
        if place >= max(retention.last or 0, 1)
        and (retention.age_ms is None or run_time_ms(run_id) < now_ms - retention.age_ms)
    ]
    return sorted(dropped)


def objects_to_drop(
    found: Iterable[str],
    needed: Collection[str],
    complete: Collection[str],
    now_ms: int,
    leftovers_ms: int = LEFTOVERS_MS,
) -> list[str]:
    """The objects of batches that no kept run needs, without those of runs that may be under way. `complete` are the
    runs that have ended, also dropped ones."""
    dropped = []
    for name in found:
        writer = writer_of(name)
        if writer is None or name in needed:
            continue
        if writer in complete or run_time_ms(writer) < now_ms - leftovers_ms:
            dropped.append(name)
    return sorted(dropped)
