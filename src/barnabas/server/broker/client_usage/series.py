"""Machine: the sums of the few most active clients for Prometheus, whose number of series is bounded at every time and
over time.

A database of metrics keeps every name that it has ever seen. `SERIES_MAX` names have sums of their own, and at most
`NEW_NAMES_PER_HOUR` new ones get them, however many clients invent names; what all others use is one more sum. A sum
never decreases while its name has one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

SERIES_MAX: Final = 100
NEW_NAMES_PER_HOUR: Final = 100
IDLE_S: Final = 3600.0
"""A name without use for so long loses its sums."""
_MORE_ACTIVE: Final = 2.0
"""A name takes the place of another one only if it is so many times as active."""

Amounts = tuple[float, float, float, float, float]
"""Bytes in, bytes out, requests, seconds of the event loop, records in."""
NOTHING: Final[Amounts] = (0.0, 0.0, 0.0, 0.0, 0.0)


def added(one: Amounts, other: Amounts) -> Amounts:
    """The sum of the amounts, each by itself."""
    a, b, c, d, e = one
    f, g, h, i, j = other
    return (a + f, b + g, c + h, d + i, e + j)


class Sums:
    """What one name has used since it has had sums of its own."""

    __slots__ = ("amounts", "at")

    def __init__(self, at: float) -> None:
        self.amounts: Amounts = NOTHING
        self.at = at
        """The time at which the name last used something."""

    def add(self, amounts: Amounts, at: float) -> None:
        self.amounts = added(self.amounts, amounts)
        self.at = at


class Series:
    """The sums of the names of one kind."""

    def __init__(self, series_max: int = SERIES_MAX, new_per_hour: int = NEW_NAMES_PER_HOUR) -> None:
        self.by_name: dict[Hashable, Sums] = {}
        self.others = Sums(0.0)
        self._series_max = series_max
        self._new_per_hour = new_per_hour
        self._new_left = float(new_per_hour)
        self._refilled_at = 0.0

    def add(self, name: Hashable, amounts: Amounts, at: float) -> None:
        """Count what a name has used."""
        sums = self.by_name.get(name)
        if sums is None:
            sums = self.others
            if len(self.by_name) < self._series_max and self._may_start(at):
                sums = self.by_name[name] = Sums(at)
        sums.add(amounts, at)

    def choose(self, active: Iterable[tuple[Hashable, float]], now: float) -> None:
        """Give sums of their own to names that are more active than names that have such sums. `active` has the names
        and how active they are, the most active first."""
        for name in [name for name, sums in self.by_name.items() if now - sums.at > IDLE_S]:
            del self.by_name[name]
        weights = dict(active)
        shown = sorted(self.by_name, key=lambda name: weights.get(name, 0.0), reverse=True)
        for name, weight in weights.items():
            if name in self.by_name:
                continue
            if len(self.by_name) >= self._series_max:
                if not shown or weight <= _MORE_ACTIVE * weights.get(shown[-1], 0.0):
                    return
                if not self._may_start(now):
                    return
                del self.by_name[shown.pop()]
            elif not self._may_start(now):
                return
            self.by_name[name] = Sums(now)

    def _may_start(self, now: float) -> bool:
        """Take one of the new names of this hour."""
        if now > self._refilled_at:
            refill = (now - self._refilled_at) * self._new_per_hour / 3600
            self._new_left = min(self._new_left + refill, float(self._new_per_hour))
            self._refilled_at = now
        if self._new_left < 1:
            return False
        self._new_left -= 1
        return True
