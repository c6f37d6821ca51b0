"""Shell: named timers on the running loop's clock.

Most timers are session timers, which each heartbeat postpones. Postponing a timer only changes its deadline; the event
loop's handle stays. When the handle fires before the deadline, it is rescheduled for the remaining time.

A timer that fires much too late is postponed once, for GRACE_S. The process was probably suspended, and the heartbeats
that the members sent in the meantime are still unread in the sockets' buffers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.server.coordination.operation import TimerKey

STALL_S: Final = 1.0
"""A timer that fires later than its deadline by this much shows that the process or the machine was suspended."""
GRACE_S: Final = 2.0
"""The time to read requests that arrived while the process was suspended: heartbeats of members, and notifications
that another node has become the leader."""


class _Timer:
    __slots__ = ("deadline", "handle", "postponed", "retry", "wakes_at")

    def __init__(self, deadline: float, handle: asyncio.TimerHandle, retry: bool) -> None:
        self.deadline = deadline
        self.wakes_at = deadline
        self.postponed = False
        self.handle = handle
        self.retry = retry


class Timers:
    """The timers of one shard. `fire(key, retry)` is called once for each scheduled timer, on the event loop."""

    def __init__(self, fire: Callable[[TimerKey, bool], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fire = fire
        self._timers: dict[TimerKey, _Timer] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._timers

    def schedule(self, key: TimerKey, delay_ms: int, *, retry: bool = False, if_absent: bool = False) -> None:
        """Schedule or reschedule the timer to fire after `delay_ms`. `if_absent` leaves an existing timer as it is."""
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
        """The milliseconds until the timer fires; -1 if there is no such timer."""
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
        if now - timer.wakes_at > STALL_S and not timer.postponed:
            timer.postponed = True
            timer.deadline = max(timer.deadline, now + GRACE_S)
        if timer.deadline > timer.wakes_at:
            timer.wakes_at = timer.deadline
            timer.handle = self._loop.call_at(timer.deadline, self._wake, key)
            return
        del self._timers[key]
        self._fire(key, timer.retry)
