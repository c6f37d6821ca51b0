"""Machine: in which order rows with different columns are applied, so that the changes of each key stay in order.

Rows of one table may have different columns: the schema changed, a field of a JSON object is missing, or the source
did not send a value. Such rows go into different statements. The rows of one key must be applied in their order, and
those of different keys need not. So each row gets a step: the number of times that the columns of its key have changed
so far. Rows of one step and one set of columns are applied together, and steps are applied one after another.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

KEYS_MAX: Final = 500_000
"""The number of keys of a task attempt that are kept in memory. Beyond it all keys go on at a new step."""


class Steps:
    """The steps of the rows of one table in one task attempt."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._first: Hashable | None = None
        self._mixed = False
        self._keys: dict[Hashable, tuple[int, Hashable]] = {}
        self._keys_max = keys_max
        self._floor: tuple[int, Hashable | None] = (0, None)
        self._largest = 0

    @property
    def is_mixed(self) -> bool:
        """Whether rows with different columns were seen."""
        return self._mixed

    def is_simple(self, columns: Hashable) -> bool:
        """Whether all rows so far, with those that come next, have these columns: then their step is 0."""
        if self._first is None:
            self._first = columns
        self._mixed = self._mixed or columns != self._first
        return not self._mixed

    def next_steps(self, keys: Sequence[Hashable], columns: Hashable) -> list[int]:
        """The steps of rows with these columns, in their order. `is_simple` was called with the columns, and false."""
        if len(self._keys) + len(keys) > self._keys_max:
            # Keys that are forgotten may have any columns, so that no step up to now is late enough for them.
            self._keys.clear()
            self._largest += 1
            self._floor = (self._largest, None)
        elif self._floor == (0, None):
            self._floor = (0, self._first)  # keys that are not known have had the first columns only
        steps = []
        for key in keys:
            step, seen = self._keys.get(key, self._floor)
            if seen is not None and seen != columns:
                step += 1
            self._keys[key] = (step, columns)
            self._largest = max(self._largest, step)
            steps.append(step)
        return steps
