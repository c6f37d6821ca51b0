"""Shell: named timers on the running loop's clock.

Almost every timer here is a session timer that each heartbeat pushes back. So a later deadline only overwrites a
number; the loop's handle stays where it is, and when it goes off early it is set again for the rest.

A timer that goes off much too late waits once more, for a moment: if this process stood still, so did all of its
members' beats, which lie unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.server.coordination.operation import TimerKey

STALL_S: Final = 1.0
"""Who is woken so much too late has not run meanwhile: the process was stopped, or the machine slept."""
GRACE_S: Final = 2.0
"""Time, then, to read what has come meanwhile: beats of members who are not to blame, or that another leads by now."""


class _Timer:
    __slots__ = ("deadline", "excused", "handle", "retry", "wakes_at")

    def __init__(self, deadline: float, handle: asyncio.TimerHandle, retry: bool) -> None:
        self.deadline = deadline
        self.wakes_at = deadline
        self.excused = False
        self.handle = handle
        self.retry = retry


class Timers:
    """The timers of one shard. `fire(key, retry)` is called once per armed timer, in the loop."""

    def __init__(self, fire: Callable[[TimerKey, bool], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fire = fire
        self._timers: dict[TimerKey, _Timer] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._timers

    def schedule(self, key: TimerKey, delay_ms: int, *, retry: bool = False, if_absent: bool = False) -> None:
        """Fire `delay_ms` from now instead of whenever this key was to fire before."""
        timer = self._timers.get(key)
        deadline = self._loop.time() + delay_ms / 1000
        if timer is not None:
            if if_absent:
                return
            if deadline >= timer.wakes_at:
                timer.deadline = deadline
                timer.retry = retry
                return
            timer.handle.cancel()
        self._timers[key] = _Timer(deadline, self._loop.call_at(deadline, self._wake, key), retry)

    def remaining_ms(self, key: TimerKey) -> int:
        """How long until it fires; -1 when there is no such timer."""
        timer = self._timers.get(key)
        return -1 if timer is None else max(round((timer.deadline - self._loop.time()) * 1000), 0)

    def cancel(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def clear(self) -> None:
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()

    def _wake(self, key: TimerKey) -> None:
        timer = self._timers[key]
        now = self._loop.time()
        if now - timer.wakes_at > STALL_S and not timer.excused:
            timer.excused = True
            timer.deadline = max(timer.deadline, now + GRACE_S)
        if timer.deadline > timer.wakes_at:
            timer.wakes_at = timer.deadline
            timer.handle = self._loop.call_at(timer.deadline, self._wake, key)
            return
        del self._timers[key]
        self._fire(key, timer.retry)
