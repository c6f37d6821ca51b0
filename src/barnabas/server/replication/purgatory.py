"""Shell: delayed operations, the requests that wait for records or for a high watermark (Kafka's purgatory).

An operation is completed by the event that it waits for (an append, a new high watermark, a new leader) or by its
deadline; no task polls. Kafka has one purgatory per kind of request, which finds operations by partition. Here each
partition has purgatories of its own. Deadlines are times of the running loop's clock (`loop.time()`), not durations.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

ResultT = TypeVar("ResultT")


class CommitPurgatory(Generic[ResultT]):
    """The operations that wait for one partition's high watermark, such as Produce requests with `acks=all`.

    Operations arrive in the order of the log, so this first-in-first-out queue is sorted by offset.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, asyncio.Future[ResultT | None], bool]] | None = None
        """None until the first operation: an empty deque takes 700 bytes, and a node may have 20,000 partitions."""

    def __len__(self) -> int:
        return 0 if self._waiting is None else len(self._waiting)

    async def wait(self, offset: int, deadline: float, *, for_client: bool = False) -> ResultT | None:
        """Wait until the high watermark reaches `offset` or the deadline passes.

        Returns the result that was passed to `complete`, `complete_all` or, with `for_client`, `complete_clients`, or
        None if the deadline passed first.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultT | None] = loop.create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((offset, future, for_client))
        timer = loop.call_at(deadline, _expire, future)
        try:
            return await future
        finally:
            timer.cancel()

    def complete(self, high_watermark: int, result: Callable[[int], ResultT]) -> None:
        """Complete every operation whose offset is at most `high_watermark`, with `result(offset)`."""
        waiting = self._waiting
        while waiting and (waiting[0][0] <= high_watermark or waiting[0][1].done()):
            offset, future, _ = waiting.popleft()
            if not future.done():
                future.set_result(result(offset))

    def complete_all(self, result: ResultT) -> None:
        """Complete every operation, whatever its offset: the leadership or the partition has ended."""
        waiting = self._waiting
        while waiting:
            _, future, _ = waiting.popleft()
            if not future.done():
                future.set_result(result)

    def complete_clients(self, result: ResultT) -> None:
        """Complete every operation that a client waits for, whatever its offset; coordinators keep waiting."""
        for _, future, for_client in self._waiting or ():
            if for_client and not future.done():
                future.set_result(result)


def _expire(future: asyncio.Future[ResultT | None]) -> None:
    if not future.done():
        future.set_result(None)


COMPLETE_NOW = 1 << 62
"""A count for `on_bytes` and `Purgatory.notify` that completes every operation, for example because this broker's role
has changed."""


class DelayedOperation:
    """One request that waits until a number of bytes has been added to the partitions that it watches.

    Bytes that are added before `wait` is called count too. An operation is used for one wait.
    """

    __slots__ = ("_deadline", "_future", "_missing", "_timer")

    def __init__(self) -> None:
        self._missing = 0
        self._deadline = math.inf
        self._timer: asyncio.Handle | None = None
        self._future: asyncio.Future[None] | None = None

    def on_bytes(self, count: int) -> None:
        """`count` more bytes can be read; `COMPLETE_NOW` completes the operation."""
        self._missing -= count
        if self._missing <= 0 and self._future is not None and not self._future.done():
            self._future.set_result(None)

    def complete_by(self, deadline: float) -> None:
        """Complete the operation at `deadline` at the latest."""
        if deadline < self._deadline:
            self._deadline = deadline
            if self._timer is not None:
                self._set_timer()

    def mark_changed(self) -> None:
        """Do nothing: only a fetch session must remember that the partition has changed."""

    def record_caught_up(self) -> None:
        """Do nothing: a delayed request reads all its partitions, and these reads record the follower's progress."""

    async def wait(self, missing: int, deadline: float) -> None:
        """Wait until `missing` bytes have been added or the deadline passes; the caller then reads again."""
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
        self._timer = asyncio.get_running_loop().call_at(self._deadline, _expire, self._future)


class PurgatoryWatcher(Protocol):
    """An entry of a `Purgatory`: a delayed operation, or one partition of a fetch session."""

    def on_bytes(self, count: int) -> None:
        """`count` more bytes of the partition can be read."""
        ...

    def complete_by(self, deadline: float) -> None:
        """The partition has changed without new bytes: the waiting request must complete by `deadline`."""
        ...

    def mark_changed(self) -> None:
        """The partition has changed; a fetch session must read it with its next request."""
        ...

    def record_caught_up(self) -> None:
        """Record that the follower had the whole log when its session last sent a request."""
        ...


class Purgatory:
    """The watchers of one partition: delayed operations and fetch sessions that wait for a change of it."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: dict[PurgatoryWatcher, None] | None = None  # notified in the order of arrival
        """None while there is no watcher, as for most partitions: an empty dict takes memory."""

    def add(self, watcher: PurgatoryWatcher) -> None:
        if self._watchers is None:
            self._watchers = {}
        self._watchers[watcher] = None

    def discard(self, watcher: PurgatoryWatcher) -> None:
        if self._watchers is not None:
            self._watchers.pop(watcher, None)

    def notify(self, count: int) -> None:
        """`count` more bytes of the partition can be read."""
        for watcher in tuple(self._watchers or ()):  # a watcher may remove itself when it is notified
            watcher.on_bytes(count)

    def complete_within(self, seconds: float) -> None:
        """The partition has changed without new bytes: complete the waiting requests after `seconds`.

        The delay lets one response carry several such changes.
        """
        if self._watchers:
            deadline = asyncio.get_running_loop().time() + seconds
            for watcher in tuple(self._watchers or ()):
                watcher.complete_by(deadline)

    def mark_changed(self) -> None:
        """Make fetch sessions read this partition with their next request. A request that waits is not completed."""
        for watcher in tuple(self._watchers or ()):
            watcher.mark_changed()

    def record_caught_up(self) -> None:
        """Record the progress of followers whose sessions did not read this partition while it did not change."""
        for watcher in self._watchers or ():
            watcher.record_caught_up()

    def __len__(self) -> int:
        return 0 if self._watchers is None else len(self._watchers)


async def wait_for_bytes(purgatories: Iterable[Purgatory], missing: int, deadline: float) -> None:
    """Wait until about `missing` more bytes can be read from the partitions of `purgatories`, or until the deadline."""
    purgatories = list(purgatories)
    operation = DelayedOperation()
    for purgatory in purgatories:
        purgatory.add(operation)
    try:
        await operation.wait(missing, deadline)
    finally:
        for purgatory in purgatories:
            purgatory.discard(operation)
