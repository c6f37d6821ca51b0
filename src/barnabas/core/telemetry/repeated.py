"""Machine: which lines of a log are written, and which are only counted because they repeat.

A line repeats another one if both have the same logger, level and event; the named values may differ. In each interval
the first few lines of an event are written. The others are counted, and one line at the end of the interval has their
number:

    WARNING barnabas.server.node heartbeat failed reason="no response" ...          up to `ALLOWED` times
    WARNING barnabas.server.node heartbeat failed repeated=117 seconds=10           117 more lines in 10 seconds
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from msgspec import Struct

ALLOWED: Final = 5
INTERVAL_S: Final = 10.0
EVENTS_MAX: Final = 500
"""Events that are counted at a time. The oldest is forgotten for a new one; its lines then start anew."""


class _Window(Struct):
    since: float
    lines: int = 0


class Repeated(Struct, frozen=True):
    """Lines that were counted and not written."""

    event: Hashable
    lines: int
    seconds: float


class RepeatedLines:
    """Decides for each line of a log, in order. Times are in seconds of one clock."""

    def __init__(self, allowed: int = ALLOWED, interval_s: float = INTERVAL_S) -> None:
        self._allowed = allowed
        self._interval_s = interval_s
        self._windows: dict[Hashable, _Window] = {}  # the oldest first

    def on_line(self, now: float, event: Hashable) -> bool:
        """Count a line. Returns whether it is to be written. Call `ended` first."""
        window = self._windows.get(event)
        if window is None:
            if len(self._windows) >= EVENTS_MAX:
                del self._windows[next(iter(self._windows))]
            window = self._windows[event] = _Window(now)
        window.lines += 1
        return window.lines <= self._allowed

    def ended(self, now: float, *, everything: bool = False) -> list[Repeated]:
        """End the intervals that are over, or all, and return what was counted in them. An interval that began in the
        future is over, too: the clock was set back."""
        found: list[Repeated] = []
        for event, window in list(self._windows.items()):
            if not everything and 0 <= now - window.since < self._interval_s:
                break  # later windows began later
            del self._windows[event]
            if window.lines > self._allowed:
                found.append(Repeated(event, window.lines - self._allowed, round(max(now - window.since, 0.0), 1)))
        return found
