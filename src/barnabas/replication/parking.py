"""Shell: where requests wait. Woken by appends and by watermarks, never by looking again; a deadline ends every wait.

Deadlines are times of the running loop's clock (`loop.time()`), not durations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class CommitQueue(Generic[T]):
    """Those who wait for one partition's high watermark. Offsets are asked for in the order of the log, so a
    first-in-first-out queue is already sorted."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, asyncio.Future[T | None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, offset: int, deadline: float) -> T | None:
        """Until the watermark reaches `offset`; None when the deadline passes first."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T | None] = loop.create_future()
        self._waiting.append((offset, future))
        timer = loop.call_at(deadline, _give_up, future)
        try:
            return await future
        finally:
            timer.cancel()

    def release(self, high_watermark: int, outcome: Callable[[int], T]) -> None:
        """Answer everyone whose offset is covered."""
        waiting = self._waiting
        while waiting and (waiting[0][0] <= high_watermark or waiting[0][1].done()):
            offset, future = waiting.popleft()
            if not future.done():
                future.set_result(outcome(offset))

    def release_all(self, outcome: T) -> None:
        """Answer everyone, whatever they wait for: leadership or the partition itself is gone."""
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(outcome)


def _give_up(future: asyncio.Future[T | None]) -> None:
    if not future.done():
        future.set_result(None)


class ReadWaiter:
    """One parked Fetch: it needs `missing` more bytes in any of the partitions it watches."""

    __slots__ = ("_deadline", "_future", "_missing", "_timer")

    def __init__(self, missing: int) -> None:
        self._missing = missing
        self._deadline = 0.0
        self._timer: asyncio.Handle | None = None
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_bytes(self, count: int) -> None:
        """`count` more bytes may be read; a large count stands for "look again now"."""
        self._missing -= count
        if self._missing <= 0 and not self._future.done():
            self._future.set_result(None)

    async def wait(self, deadline: float) -> None:
        """Until enough has arrived or the deadline passes; the caller then reads again and sees which."""
        self._set(deadline)
        try:
            await self._future
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def hurry(self, deadline: float) -> None:
        """Wait no longer than to `deadline`."""
        if self._timer is not None and deadline < self._deadline:
            self._timer.cancel()
            self._set(deadline)

    def _set(self, deadline: float) -> None:
        self._deadline = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, _give_up, self._future)


LOOK_AGAIN = 1 << 62
"""`on_bytes` with this wakes a waiter at once: leadership, existence or an error has changed."""


class ReadWatch:
    """The parked fetches of one partition."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[ReadWaiter, None] = {}  # woken in the order in which they came

    def add(self, waiter: ReadWaiter) -> None:
        self._waiters[waiter] = None

    def discard(self, waiter: ReadWaiter) -> None:
        self._waiters.pop(waiter, None)

    def notify(self, count: int) -> None:
        for waiter in self._waiters:
            waiter.on_bytes(count)

    def hurry(self, within_s: float) -> None:
        """There is news without bytes: whoever waits hears of it, soon enough to be of use, with others of its kind."""
        if self._waiters:
            deadline = asyncio.get_running_loop().time() + within_s
            for waiter in self._waiters:
                waiter.hurry(deadline)

    def __len__(self) -> int:
        return len(self._waiters)


async def wait_readable(watches: Iterable[ReadWatch], missing: int, deadline: float) -> None:
    """Park until about `missing` more bytes may be read from the watched partitions, or until the deadline."""
    watches = list(watches)
    waiter = ReadWaiter(missing)
    for watch in watches:
        watch.add(waiter)
    try:
        await waiter.wait(deadline)
    finally:
        for watch in watches:
            watch.discard(waiter)
