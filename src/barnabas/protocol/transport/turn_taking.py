"""Shell: lets the connections of a node's listeners start their requests in turns of the event loop, as `turns.py`
decides.

A connection starts a request at once while none waits and this turn has time left. Otherwise the connection waits, and
is served by `_run` in slices, until the time of the turn is over; then the loop runs other callbacks: it reads
from sockets, accepts connections, and continues the requests that were suspended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.protocol.transport.turns import Share, Turns

TURN_S: Final = 0.010
"""The time for requests in one turn of the event loop."""
SLICE_S: Final = 0.001
"""The time for requests of one connection in a row; a request that was started is finished."""
REQUEST_S: Final = 0.000_020
"""The least cost of a request, for a clock that stands still."""


class Waiting(Protocol):
    """A connection with requests that wait for their turn."""

    share: Share

    def start_waiting(self) -> None: ...


class TurnTaking:
    """The turns of one node. `clock` measures work in seconds; the simulated loop has a clock of its own, which counts
    units of work, so that a seed can be replayed."""

    def __init__(self, *, turn_s: float = TURN_S, slice_s: float = SLICE_S) -> None:
        self.clock: Callable[[], float] = time.perf_counter
        self.turns = Turns()
        self.slice_s = slice_s
        self.left = turn_s
        """The time that is left of this turn. A connection that starts requests subtracts their cost: what the clock
        says, at least `REQUEST_S` for each."""
        self.is_busy = False
        """Whether connections wait, so that only the one that is being served may start requests."""
        self.served: Waiting | None = None
        """The connection that is being served by `_run`."""
        self._served_waits = False
        self._turn_s = turn_s

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure work by the clock of this event loop, on which the connections live."""
        self.clock = getattr(loop, "work_clock", time.perf_counter)

    def wait(self, connection: Waiting) -> None:
        """Call the connection's `start_waiting` when it is its turn."""
        if connection is self.served:
            self._served_waits = True
            return
        self.turns.enter(connection.share)
        if not self.is_busy:
            self.is_busy = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """One turn."""
        self.left = self._turn_s
        turns = self.turns
        while turns and self.left > 0:
            share = turns.next()
            connection: Waiting = share.owner  # type: ignore[assignment]  # a share without children is a connection's
            before = self.left
            self.served, self._served_waits = connection, False
            try:
                connection.start_waiting()
            finally:
                self.served = None
                turns.charge(share, before - self.left, waits=self._served_waits and connection.share is share)
            if self._served_waits and connection.share is not share:
                turns.enter(connection.share)  # it has authenticated as another client in its slice
        self.is_busy = bool(turns)
        if self.is_busy:
            asyncio.get_running_loop().call_soon(self._run)
