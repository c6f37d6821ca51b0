"""Shell: where requests wait. Woken by appends and by watermarks, never by looking again; a deadline ends every wait.

Deadlines are times of the running loop's clock (`loop.time()`), not durations.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

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


LOOK_AGAIN = 1 << 62
"""`on_bytes` with this wakes a waiter at once: leadership, existence or an error has changed."""


class ReadWaiter:
    """One parked Fetch: it needs so many more bytes in any of the partitions it watches. What comes before it waits
    counts too."""

    __slots__ = ("_deadline", "_future", "_missing", "_timer")

    def __init__(self) -> None:
        self._missing = 0
        self._deadline = math.inf
        self._timer: asyncio.Handle | None = None
        self._future: asyncio.Future[None] | None = None

    def on_bytes(self, count: int) -> None:
        """`count` more bytes may be read; a large count stands for "look again now"."""
        self._missing -= count
        if self._missing <= 0 and self._future is not None and not self._future.done():
            self._future.set_result(None)

    def hurry(self, deadline: float) -> None:
        """Wait no longer than to `deadline`."""
        if deadline < self._deadline:
            self._deadline = deadline
            if self._timer is not None:
                self._set_timer()

    def touch(self) -> None:
        """Nothing to wake for."""

    def renew(self) -> None:
        """It reads every time."""

    async def wait(self, missing: int, deadline: float) -> None:
        """Until `missing` bytes have arrived or the deadline passes; the caller then reads again and sees which."""
        self._missing += missing
        if self._missing <= 0:
            return
        self._future = asyncio.get_running_loop().create_future()
        self._deadline = min(self._deadline, deadline)
        self._set_timer()
        try:
            await self._future
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _set_timer(self) -> None:
        assert self._future is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._deadline, _give_up, self._future)


class Watcher(Protocol):
    """Who hears of a partition: a parked fetch, or a session."""

    def on_bytes(self, count: int) -> None: ...

    def hurry(self, deadline: float) -> None: ...

    def touch(self) -> None: ...

    def renew(self) -> None: ...


class ReadWatch:
    """Who reads one partition, and wants to hear when there is more."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: dict[Watcher, None] = {}  # told in the order in which they came

    def add(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def notify(self, count: int) -> None:
        for watcher in tuple(self._watchers):  # they may leave when they are told
            watcher.on_bytes(count)

    def hurry(self, within_s: float) -> None:
        """There is news without bytes: whoever waits hears of it, soon enough to be of use, with others of its kind."""
        if self._watchers:
            deadline = asyncio.get_running_loop().time() + within_s
            for watcher in tuple(self._watchers):
                watcher.hurry(deadline)

    def touch(self) -> None:
        """Something is different that nobody need wake for: sessions look at this partition when they next read."""
        for watcher in tuple(self._watchers):
            watcher.touch()

    def renew(self) -> None:
        """Sessions say of this partition what they did not say while it was at rest."""
        for watcher in self._watchers:
            watcher.renew()

    def __len__(self) -> int:
        return len(self._watchers)


async def wait_readable(watches: Iterable[ReadWatch], missing: int, deadline: float) -> None:
    """Park until about `missing` more bytes may be read from the watched partitions, or until the deadline."""
    watches = list(watches)
    waiter = ReadWaiter()
    for watch in watches:
        watch.add(waiter)
    try:
        await waiter.wait(missing, deadline)
    finally:
        for watch in watches:
            watch.discard(waiter)
