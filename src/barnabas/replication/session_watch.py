"""Shell: what a fetch session need look at: the partitions of which something has changed since it last read them.

A session of a thousand partitions, most of them at rest, is asked for its news many times a second. Each partition it
has read to the end gets a mark; whatever happens there (records, a watermark, a log start, another role) puts the
partition on the session's list, and wakes its request if that waits. A partition without a mark is always on the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from barnabas.replication.parking import ReadWaiter, ReadWatch

K = TypeVar("K")

NEVER_MS: Final = -(1 << 62)

OnChange = Callable[[int], None]
"""Called when a partition goes on the list, with the time of the session's latest request."""


class _Mark(Generic[K]):
    """One partition of one session (`parking.Watcher`)."""

    __slots__ = ("key", "on_change", "session", "watch")

    def __init__(self, session: SessionWatch[K], key: K, watch: ReadWatch, on_change: OnChange | None) -> None:
        self.session = session
        self.key = key
        self.watch = watch
        self.on_change = on_change
        watch.add(self)

    def touch(self) -> None:
        session = self.session
        if self.key not in session.changed:
            session.changed[self.key] = None
            if self.on_change is not None:
                self.on_change(session.heard_ms)

    def on_bytes(self, count: int) -> None:
        self.touch()
        self.session.waiter.on_bytes(count)

    def hurry(self, deadline: float) -> None:
        self.touch()
        self.session.waiter.hurry(deadline)


class SessionWatch(Generic[K]):
    """Lives as long as its session. `changed` is the session's list, first come first served."""

    def __init__(self, changed: dict[K, None]) -> None:
        self.changed = changed
        self.heard_ms = NEVER_MS
        """When the session last asked."""
        self.waiter = ReadWaiter()
        self._marks: dict[K, _Mark[K]] = {}
        self._closed = False

    def begin(self) -> None:
        """A pass over the list begins: what happens from now on counts for the next wait."""
        self.waiter = ReadWaiter()

    async def wait(self, missing: int, deadline: float) -> None:
        """Until about `missing` more bytes may be read than at the last pass, or until the deadline."""
        await self.waiter.wait(missing, deadline)

    def settle(self, key: K, watch: ReadWatch, on_change: OnChange | None = None) -> None:
        """`key` has just been read to its end: off the list, until `watch` has something."""
        if self._closed:  # by another request, while this one was read
            return
        mark = self._marks.get(key)
        if mark is None or mark.watch is not watch:
            self.forget(key)
            self._marks[key] = _Mark(self, key, watch, on_change)
        self.changed.pop(key, None)

    def forget(self, key: K) -> None:
        """The session no longer has `key`."""
        mark = self._marks.pop(key, None)
        if mark is not None:
            mark.watch.discard(mark)

    def close(self) -> None:
        """The session is gone."""
        self._closed = True
        for mark in self._marks.values():
            mark.watch.discard(mark)
        self._marks.clear()
