"""Shell: long work lets the event loop run other tasks, and is counted.

    pauses = Pauses()
    for partition in partitions:
        ...                               # about 20 microseconds of work
        await pauses.after(1)             # suspends after STEP_UNITS units

A unit is about 20 microseconds: an entry of a list, a record that is applied; a partition's log that is created or
deleted is 50 units. Work that cannot pause is counted with `count`. The count of the running step is `STEP.units`.
Nothing in production reads it: the simulated world sets it to 0 before each callback of the event loop, and fails when
a callback counts more than STEP_UNITS_MAX (`testing/sim/loop.py`). Counts are the same on every machine, unlike times.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

UNIT_S: Final = 0.000_020
"""The time of a unit."""
STEP_UNITS: Final = 1_000
"""Work pauses after this many units."""
STEP_UNITS_MAX: Final = 12_500
"""The most units of one step, with the work that cannot pause: a quarter of a second."""
TASKS_AT_ONCE: Final = 100
"""The tasks of one piece of work that wait at the same time: the event loop starts all of them in one turn."""


class _Step(threading.local):
    """The units of the event loop's running step. Each thread has its own, so that the work of a worker thread is not
    counted for the event loop."""

    units = 0


STEP: Final = _Step()


def count(units: int) -> None:
    """Count work that cannot pause."""
    STEP.units += units


class Pauses:
    """The pauses of one piece of work."""

    __slots__ = ("_left", "_step_units")

    def __init__(self, step_units: int = STEP_UNITS) -> None:
        self._step_units = self._left = step_units

    async def after(self, units: int) -> None:
        """Count `units`; suspend if `step_units` were counted since the last suspension."""
        STEP.units += units
        self._left -= units
        if self._left <= 0:
            self._left = self._step_units
            await asyncio.sleep(0)


async def in_slices(steps: Generator[int, None, R]) -> R:
    """Run a generator that yields the units of each slice of its work, with pauses. Returns its result."""
    pauses = Pauses()
    while True:
        try:
            units = next(steps)
        except StopIteration as done:
            result: R = done.value
            return result
        await pauses.after(units)


async def for_each(function: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Await `function(item)` for each item, TASKS_AT_ONCE of them at the same time. They start in order; the results
    are in the same order. An exception of one ends the call."""
    results: list[R] = []
    left = iter(items)
    while chosen := list(islice(left, TASKS_AT_ONCE)):
        results += await asyncio.gather(*map(function, chosen))
    return results
