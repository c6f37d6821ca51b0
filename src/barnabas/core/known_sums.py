"""Codec: numbers of which some are unknown -> their sum, which then is unknown, too."""

from __future__ import annotations

from collections.abc import Iterable


def sum_of_known(numbers: Iterable[int | None]) -> int | None:
    """The sum. None if there are no numbers, or if one is unknown (None): a sum without it would look like a small one.
    Lags of groups, links, mirrors and pipelines are added with this function."""
    found = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if known and len(known) == len(found) else None
