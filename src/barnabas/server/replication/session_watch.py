"""Shell: what a fetch session need look at: the partitions of which something has changed since it last read them.

A session of a thousand partitions, most of them at rest, is asked for its news many times a second. Each partition that
it has read gets a mark; whatever happens there (records, a watermark, a log start, another role) puts the partition on
the session's list, and wakes its request if that waits. What has been read to its end is off the list; a partition
without a mark is always on it.

A mark of a session that is not asking just now has done its work once the partition is on the list, and goes: clients
that have left cost an append nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from barnabas.server.replication.purgatory import COMPLETE_NOW, DelayedOperation, Purgatory
from barnabas.server.replication.rules.leader import NEVER_MS

K = TypeVar("K")

WhenAtRest = Callable[[int], None]
"""Told of a partition off the list that its reader had everything of it, when the session last asked (ms)."""


class _Mark(Generic[K]):
    """One partition of one session (`purgatory.PurgatoryWatcher`)."""

    __slots__ = ("at_rest", "key", "session", "watch")

    def __init__(self, session: SessionWatch[K], key: K, watch: Purgatory, at_rest: WhenAtRest | None) -> None:
        self.session = session
        self.key = key
        self.watch = watch
        self.at_rest = at_rest
        watch.add(self)

    def record_caught_up(self) -> None:
        if self.at_rest is not None and self.key not in self.session.changed:
            self.at_rest(self.session.heard_ms)

    def mark_changed(self) -> None:
        self.record_caught_up()
        self.session.changed.setdefault(self.key)
        if not self.session.asking:
            self.session.forget(self.key)

    def on_bytes(self, count: int) -> None:
        self.mark_changed()
        self.session.waiter.on_bytes(count)

    def complete_by(self, deadline: float) -> None:
        self.mark_changed()
        self.session.waiter.complete_by(deadline)


class SessionWatch(Generic[K]):
    """Lives as long as its session. `changed` is the session's list, first come first served."""

    def __init__(self, changed: dict[K, None]) -> None:
        self.changed = changed
        self.heard_ms = NEVER_MS
        """When the session last asked."""
        self.asking = 0
        """Requests of the session that are being answered."""
        self.asked_as: Hashable = None
        """How the session last asked: what is at rest for one kind of reader need not be so for another."""
        self.waiter = DelayedOperation()
        self.closed = False
        """The session is gone; a request that outlives it hears of nothing more."""
        self._marks: dict[K, _Mark[K]] = {}

    def begin(self) -> None:
        """A pass over the list begins: what happens from now on counts for the next wait."""
        self.waiter = DelayedOperation()

    async def wait(self, missing: int, deadline: float) -> None:
        """Until about `missing` more bytes may be read than at the last pass, or until the deadline."""
        if not self.closed:
            await self.waiter.wait(missing, deadline)

    def watch(self, key: K, watch: Purgatory, at_rest: WhenAtRest | None = None) -> None:
        """`key` has just been read: hear of what happens there."""
        mark = self._marks.get(key)
        if not self.closed and (mark is None or mark.watch is not watch):
            self.forget(key)
            self._marks[key] = _Mark(self, key, watch, at_rest)

    def settle(self, key: K) -> None:
        """`key`, which is watched, has just been read to its end: off the list, until something happens."""
        if not self.closed:
            self.changed.pop(key, None)

    def forget(self, key: K) -> None:
        """The session no longer has `key`, or need not hear of it."""
        mark = self._marks.pop(key, None)
        if mark is not None:
            mark.record_caught_up()
            mark.watch.discard(mark)

    def close(self) -> None:
        """The session is gone."""
        for key in list(self._marks):
            self.forget(key)
        self.closed = True
        self.waiter.on_bytes(COMPLETE_NOW)
