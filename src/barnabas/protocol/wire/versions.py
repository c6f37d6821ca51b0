"""Value: version ranges in the notation of Kafka's message definitions: "0+", "4-18", "3", "none"."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

OPEN_END = 32767


class Versions(NamedTuple):
    """The versions from `low` to `high`, both included. Empty when `low` > `high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == OPEN_END:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NONE = Versions(0, -1)
ALL = Versions(0, OPEN_END)


@cache
def versions(text: str) -> Versions:
    """Parse a range such as `0+`, `4-18`, `3` or `none`. Raises ValueError for any other form."""
    if text == "none":
        return NONE
    if text.endswith("+"):
        return Versions(int(text[:-1]), OPEN_END)
    low, dash, high = text.partition("-")
    return Versions(int(low), int(high if dash else low))
