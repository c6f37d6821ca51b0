"""Shell: lets the connections of a node's listeners use the event loop in turns, as `turns.py` decides.

A connection starts a request at once while none waits and this turn has time left. Otherwise the connection waits, and
is served by `_run` in slices, until the time of the turn is over; then the loop runs other callbacks: it reads
from sockets, accepts connections, and continues the requests that were suspended.

A request that pauses in long work (`core/work.py`) waits for a turn of its connection, too, and a turn of the loop
continues at most one such request: a slice of long work takes longer than all other requests of a turn. What a request
does after it has waited for something else, for example for an append, is not held up, but its connection pays for it.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from barnabas.protocol.transport.turns import Share, Turns

T = TypeVar("T")

TURN_S: Final = 0.010
"""The time for requests in one turn of the event loop."""
SLICE_S: Final = 0.001
"""The time for requests of one connection in a row; a request that was started is finished."""
REQUEST_S: Final = 0.000_020
"""The least cost of a request, for a clock that stands still."""


class Waiting(Protocol):
    """A connection that waits for its turn: with requests, or with a TLS handshake that has not ended."""

    share: Share
    """The share that `find_share` has returned last."""
    paused: deque[asyncio.Future[None]] | None
    """The connection's requests that have paused in long work, in order; None until one has."""

    def start_waiting(self) -> None: ...

    def find_share(self) -> Share:
        """The share of the connection among those of the client that it has now."""
        ...


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
        share = connection.find_share()
        if connection is self.served:
            self._served_waits = True
            return
        self.turns.enter(share)
        if not self.is_busy:
            self.is_busy = True
            asyncio.get_running_loop().call_soon(self._run)

    def charge(self, connection: Waiting, seconds: float) -> None:
        """The connection has used the loop outside its turn."""
        self.left -= seconds
        if self.is_busy:
            self.turns.add(connection.find_share(), seconds)

    def _run(self) -> None:
        """One turn."""
        self.left = self._turn_s
        turns = self.turns
        has_continued = False
        while turns and self.left > 0 and not has_continued:
            share = turns.next()
            connection: Waiting = share.owner  # type: ignore[assignment]  # a share without children is a connection's
            before = self.left
            self.served, self._served_waits = connection, False
            try:
                if connection.paused:
                    has_continued = self._continue(connection.paused)
                    self._served_waits = True  # perhaps with nothing more: then its next turn is empty
                else:
                    connection.start_waiting()
            finally:
                self.served = None
                turns.charge(share, before - self.left, waits=self._served_waits and connection.share is share)
            if self._served_waits and connection.share is not share:
                turns.enter(connection.share)  # it has authenticated as another client in its slice
        self.is_busy = bool(turns)
        if self.is_busy:
            asyncio.get_running_loop().call_soon(self._run)

    @staticmethod
    def _continue(paused: deque[asyncio.Future[None]]) -> bool:
        """Continue the request that has paused first. Its task runs in the next turn of the loop, before `_run`, and
        its connection is charged when the slice has ended. Returns False if all of them were cancelled."""
        while paused:
            turn = paused.popleft()
            if not turn.done():
                turn.set_result(None)
                return True
        return False


@types.coroutine
def in_turns(coroutine: Coroutine[Any, Any, T], connection: Waiting, turns: TurnTaking) -> Generator[Any, Any, T]:
    """Run the coroutine of a request in a task. Where it pauses to let others run, as `asyncio.sleep(0)` does, it waits
    for a turn of its connection. Its connection pays for each step."""
    clock = turns.clock
    resume: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    while True:
        began = clock()
        try:
            awaited = resume(argument)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            turns.charge(connection, clock() - began)
        try:
            if awaited is None:
                argument = yield from _next_turn(connection, turns)
            else:
                argument = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the inner coroutine gets cancellation, too
            resume, argument = coroutine.throw, error
        else:
            resume = coroutine.send


def _next_turn(connection: Waiting, turns: TurnTaking) -> Generator[Any, Any, None]:
    turn = asyncio.get_running_loop().create_future()
    if connection.paused is None:
        connection.paused = deque()
    connection.paused.append(turn)
    turns.wait(connection)
    yield from turn
