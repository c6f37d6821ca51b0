"""Machine: notices positions that should move and do not.

They are last stable offsets behind open transactions, and committed offsets of groups. Time is an argument, in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class StallWatch(Generic[K]):
    """Remembers since when each position stands still although there is something to do."""

    def __init__(self) -> None:
        self._since: dict[K, tuple[int, int]] = {}

    def observe(self, now_ms: int, positions: Mapping[K, int]) -> None:
        """`positions` has only those that should move; one that is missing was done, and is forgotten."""
        self._since = {
            name: known if (known := self._since.get(name)) is not None and known[0] == position else (position, now_ms)
            for name, position in positions.items()
        }

    def stalled(self, now_ms: int, after_ms: int) -> dict[K, tuple[int, int]]:
        """(position, time since when it stands still) of those that have not moved for `after_ms`."""
        return {name: found for name, found in self._since.items() if now_ms - found[1] >= after_ms}
