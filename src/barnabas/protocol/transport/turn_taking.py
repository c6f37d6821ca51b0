"""Shell: lets the connections of a node's listeners use the event loop in turns, as `turns.py` decides.

A connection starts a request at once while none waits and this turn has time left. Otherwise the connection waits, and
is served by `_run` in slices, until the time of the turn is over; then the loop runs other callbacks: it reads
from sockets, accepts connections, and continues the requests that were suspended.

A request that pauses in long work (`core/work.py`) waits for a slice, and a turn of the loop has one slice. Clients
share the slices by their cost. The requests of one client are finished one after the other, oldest first, so that only
one of them holds more than what its first slice has built. What a request does after it has waited for something else,
for example for an append, is not held up, but its client pays for it.
"""

from __future__ import annotations

import asyncio
import math
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar, cast

from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.turns import Share, Turns

log = get_logger("barnabas.protocol.transport")

T = TypeVar("T")

TURN_S: Final = 0.005
"""The time for requests in one turn of the event loop; a slice of long work comes on top."""
SLICE_S: Final = 0.001
"""The time for requests of one connection in a row; a request that was started is finished."""
REQUEST_S: Final = 0.000_020
"""The least cost of a request, for a clock that stands still."""


class Waiting(Protocol):
    """A connection that waits for its turn: with requests, or with a TLS handshake that has not ended."""

    share: Share
    """The share that `find_share` has returned last."""

    def start_waiting(self) -> None: ...

    def fail(self) -> None:
        """Close the connection: `start_waiting` has raised an exception."""
        ...

    def find_share(self) -> Share:
        """The share of the connection among those of the client that it has now."""
        ...


class WaitingForSlices(Waiting, Protocol):
    """A connection whose requests may be long, and wait for slices."""

    @property
    def client(self) -> tuple[str, str]:
        """The names of the listener and of the client."""
        ...


class TurnTaking:
    """The turns of one node.

    `clock` measures work in seconds. While connections wait, it is the time of the processor: on a busy machine, a
    connection must not pay for the time in which another process ran. It takes longer to read, so without contention
    `clock` is the elapsed time. The simulated loop has a clock of its own, which counts units of work, so that a seed
    can be replayed.
    """

    def __init__(self, *, turn_s: float = TURN_S, slice_s: float = SLICE_S) -> None:
        self._quiet_clock: Callable[[], float] = time.perf_counter
        self._busy_clock: Callable[[], float] = time.thread_time
        self.clock = self._quiet_clock
        self.turns = Turns(grace=0.0 if slice_s == math.inf else slice_s)
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
        self._slices = Turns()
        """Clients whose requests have paused. The owner of a client's share is the deque of these pauses."""
        self._is_scheduled = False

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure work by the clock of this event loop, on which the connections live."""
        work_clock = getattr(loop, "work_clock", None)
        if work_clock is not None:
            self.use_clock(work_clock)

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Measure work by this clock only."""
        self.clock = self._quiet_clock = self._busy_clock = clock

    def wait(self, connection: Waiting) -> None:
        """Call the connection's `start_waiting` when it is its turn."""
        share = connection.find_share()
        if connection is self.served:
            self._served_waits = True
            return
        self.turns.enter(share)
        self.is_busy, self.clock = True, self._busy_clock
        self._schedule()

    def pause(self, connection: WaitingForSlices, *, is_first: bool) -> tuple[asyncio.Future[None], Share]:
        """A future that is done when the request of the connection has a slice, and the share that pays for the slice;
        `is_first` says that the request has had none yet."""
        share = self._slices.client(*connection.client)
        loop = asyncio.get_running_loop()
        slice_ = loop.create_future()
        if share.owner is None:
            share.owner = deque()
        pauses = cast("deque[asyncio.Future[None]]", share.owner)
        if is_first:
            pauses.append(slice_)
        else:
            pauses.appendleft(slice_)
        self._slices.enter(share)
        self._schedule()
        return slice_, share

    def charge(self, connection: Waiting, seconds: float, slice_of: Share | None = None) -> None:
        """The connection has used the loop outside its turn, for a slice of this client or for something else."""
        if self.is_busy:
            self.turns.add(connection.find_share(), seconds)
        if slice_of is None:
            self.left -= seconds
        else:
            self._slices.add(slice_of, seconds)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """One turn."""
        self.left = self._turn_s
        self._start_slice()
        turns = self.turns
        while turns and self.left > 0:
            share = turns.next()
            connection: Waiting = share.owner  # type: ignore[assignment]  # a share without children is a connection's
            before = self.left
            self.served, self._served_waits = connection, False
            try:
                connection.start_waiting()
            except Exception:  # a bug in one connection must not end the turns of the others
                log.exception("a connection failed in its turn", client=str(connection))
                connection.fail()
            self.served = None
            turns.charge(share, before - self.left, waits=self._served_waits and connection.share is share)
            if self._served_waits and connection.share is not share:
                turns.enter(connection.share)  # it has authenticated as another client in its slice
        self.is_busy = bool(turns)
        self.clock = self._busy_clock if self.is_busy else self._quiet_clock
        self._is_scheduled = False
        if turns or self._slices:
            self._schedule()

    def _start_slice(self) -> None:
        """Continue a request that has paused. Its task runs in the next turn of the loop, before `_run`, and its client
        is charged when the slice has ended."""
        slices = self._slices
        while slices:
            share = slices.next()
            pauses = cast("deque[asyncio.Future[None]]", share.owner)
            slice_ = pauses.popleft()
            slices.charge(share, 0.0, waits=bool(pauses))
            if not slice_.done():  # a request may have been cancelled
                slice_.set_result(None)
                return


@types.coroutine
def in_turns(
    coroutine: Coroutine[Any, Any, T], connection: WaitingForSlices, turns: TurnTaking
) -> Generator[Any, Any, T]:
    """Run the coroutine of a request in a task. Where it pauses to let others run, as `asyncio.sleep(0)` does, it waits
    for a slice. Its client pays for each step."""
    clock = turns.clock
    resume: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    slice_of: Share | None = None
    is_first = True
    while True:
        began = clock()
        try:
            awaited = resume(argument)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            turns.charge(connection, clock() - began, slice_of)
        slice_of = None
        try:
            if awaited is None:
                slice_, slice_of = turns.pause(connection, is_first=is_first)
                is_first = False
                yield from slice_
                argument = None
            else:
                argument = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the inner coroutine gets cancellation, too
            resume, argument = coroutine.throw, error
        else:
            resume = coroutine.send
