"""Shell: named timers on the running loop's clock.

Almost every timer here is a session timer that each heartbeat pushes back. So a later deadline only overwrites a
number; the loop's handle stays where it is, and when it goes off early it is set again for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.coordination.turn import TimerKey


class _Timer:
    __slots__ = ("deadline", "handle", "retry", "wakes_at")

    def __init__(self, deadline: float, handle: asyncio.TimerHandle, retry: bool) -> None:
        self.deadline = deadline
        self.wakes_at = deadline
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

    def arm(self, key: TimerKey, delay_ms: int, *, retry: bool = False, if_absent: bool = False) -> None:
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

    def left_ms(self, key: TimerKey) -> int:
        """How long until it fires; -1 when there is no such timer."""
        timer = self._timers.get(key)
        return -1 if timer is None else max(round((timer.deadline - self._loop.time()) * 1000), 0)

    def disarm(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def clear(self) -> None:
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()

    def _wake(self, key: TimerKey) -> None:
        timer = self._timers[key]
        if timer.deadline > timer.wakes_at:
            timer.wakes_at = timer.deadline
            timer.handle = self._loop.call_at(timer.deadline, self._wake, key)
            return
        del self._timers[key]
        self._fire(key, timer.retry)
