"""Shell: an asyncio event loop with virtual time. Time is a number that jumps to the next timer when no callback is
ready.

The loop keeps asyncio's guarantees: `call_soon` is first in, first out, and timers fire in order. The seed decides
everything that asyncio leaves open: which of several processes runs first, how long an executor job takes, and at which
moment within that time the job takes effect. The loop cannot wait for, open or connect to anything real.

A callback that counts more work than one step may (`core/work`) ends the run with a LivenessError: with real time the
callback would delay all other requests of its node. Work takes no simulated time, except that of a process whose
`takes_time` is set: after a step that has counted work, its other callbacks wait for the time of that work.
"""

from __future__ import annotations

import asyncio
import random
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count as numbers
from typing import Any, Final, NoReturn, TypeVar

from barnabas.core.work import STEP, STEP_UNITS_MAX, UNIT_S
from barnabas.testing.sim.errors import LivenessError, RealWorldError
from barnabas.testing.sim.handles import SimHandle, SimTimer
from barnabas.testing.sim.process import CURRENT, Process, ProcessState

T = TypeVar("T")

_STEPS_AT_ONE_INSTANT: Final = 200_000
"""The number of callbacks at one moment of virtual time after which the code counts as an endless loop."""
_CANCELLED_TIMERS_KEPT: Final = 200
_RUNNING: Final = ProcessState.RUNNING
_NOBODY: Final = Context()
"""The context of callbacks that run whether or not the processes run."""


def _held(handle: SimHandle, units: int) -> str:
    """The text about a callback that held the loop for too long."""
    owner = getattr(handle._callback, "__self__", None)
    what = owner.get_name() if isinstance(owner, asyncio.Task) else repr(handle._callback)
    return f"{what} held the event loop: {units} units of work in one step, at most {STEP_UNITS_MAX} are allowed."


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is its number, not its address, so that sets of futures have the same order in a replay."""

    number: int

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[T]):
    """A task whose hash is its number, so that a replay cancels the tasks of an `asyncio.TaskGroup` in the same order:
    the group keeps its tasks in a set."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], loop: SimLoop, name: object, context: Context | None) -> None:
        self.number = number = loop.next_number()  # before super().__init__: asyncio adds the task to a set
        super().__init__(coroutine, loop=loop, name=f"Task-{number}" if name is None else str(name), context=context)

    def __hash__(self) -> int:
        return self.number


class SimLoop(BaseEventLoop):
    """The event loop of one world. `network` creates its connections and servers."""

    # Attributes of BaseEventLoop since Python 3.4, which the type stubs omit.
    _ready: deque[SimHandle]
    _scheduled: list[tuple[float, SimTimer]]
    _stopping: bool

    def __init__(self, rng: random.Random, *, start: float = 1_000.0) -> None:
        super().__init__()
        self.network: Any = None
        """A `network.SimNetwork`; the world sets this attribute."""
        self.steps = 0
        """The number of callbacks run so far."""
        self.hung = ""
        """The stack of a callback that was interrupted as endless; empty if there was none."""
        self.after_step: Callable[[Process | None], None] | None = None
        """Called after every step of a process, to check rules. An exception of the callable ends the run."""
        self._rng = rng
        self._now = start
        self.next_number: Callable[[], int] = numbers(1).__next__
        """Numbers futures and tasks."""
        self._steps_here = 0
        self._clock_resolution = 1e-9

    # ---- time

    def time(self) -> float:
        return self._now

    def work_clock(self) -> float:
        """The work of this step in seconds, by its counted units; see `protocol/transport/turn_taking.py`."""
        return STEP.units * UNIT_S

    def call_soon(  # type: ignore[override]  # only what the product uses of it
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # one thread only

    def call_at(  # type: ignore[override]  # only what the product uses of it
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimTimer:
        timer = SimTimer(when, callback, args, self, context)
        heappush(self._scheduled, (when, timer))
        return timer

    def call_later(  # type: ignore[override]  # only what the product uses of it
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimTimer:
        when = self._now + delay
        timer = SimTimer(when, callback, args, self, context)
        heappush(self._scheduled, (when, timer))
        return timer

    def on_timer_cancelled(self) -> None:
        self._timer_cancelled_count += 1

    get_debug = bool
    """Always False. Every future and task calls this method, and `bool` is the fastest such callable."""

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if not ready:
            self._jump()
        now = self._now
        while scheduled and scheduled[0][0] <= now:
            timer = heappop(scheduled)[1]
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(timer)
        count = len(ready)
        self.steps += count
        self._steps_here += count
        if self._steps_here > _STEPS_AT_ONE_INSTANT:
            raise LivenessError(f"{_STEPS_AT_ONE_INSTANT} callbacks ran without any progress of time: an endless loop.")
        after = self.after_step
        for owner, handles in self._groups(count):
            if owner is None or (owner.state is _RUNNING and not owner.busy):
                units = 0
                for handle in handles:
                    if not handle._cancelled:
                        STEP.units = 0
                        try:
                            handle._context.run(handle._callback, *handle._args)
                        except BaseException as error:  # noqa: BLE001 - asyncio, too, passes on any error of a callback
                            handle.on_error(error)
                        if STEP.units > STEP_UNITS_MAX:
                            raise LivenessError(_held(handle, STEP.units))
                        units += STEP.units
                if units and owner is not None and owner.takes_time:
                    owner.busy = True
                    self.call_at(self._now + units * UNIT_S, self._work_done, owner, context=_NOBODY)
                if after is not None:
                    after(owner)
            elif owner.state is not ProcessState.DEAD:
                owner.held.extend(handle for handle in handles if not handle._cancelled)
        if self.hung:  # also if the callback caught the interruption
            raise LivenessError(f"A callback did not end:\n{self.hung}")

    def _jump(self) -> None:
        """Moves the time to the next timer."""
        scheduled = self._scheduled
        while scheduled and scheduled[0][1]._cancelled:
            heappop(scheduled)[1]._scheduled = False
            self._timer_cancelled_count -= 1
        if self._timer_cancelled_count > _CANCELLED_TIMERS_KEPT and self._timer_cancelled_count * 2 > len(scheduled):
            self._drop_cancelled()
        if not scheduled:
            if self._stopping:
                return
            raise LivenessError("Deadlock: no callback is ready and no timer is set, so nothing can happen any more.")
        when = scheduled[0][0]
        if when > self._now:
            self._now = when
            self._steps_here = 0

    def _drop_cancelled(self) -> None:
        scheduled = self._scheduled
        for _, handle in scheduled:
            if handle._cancelled:
                handle._scheduled = False
        scheduled[:] = [entry for entry in scheduled if not entry[1]._cancelled]
        heapify(scheduled)
        self._timer_cancelled_count = 0

    def _groups(self, count: int) -> Collection[tuple[Process | None, Sequence[SimHandle]]]:
        """The next `count` handles by process. Handles of a process keep their order; the seed decides the order of the
        processes."""
        popleft = self._ready.popleft
        if count == 1:
            handle = popleft()
            return ((handle._context.get(CURRENT), (handle,)),)
        by_owner: dict[Process | None, list[SimHandle]] = {}
        for _ in range(count):
            handle = popleft()
            owner = handle._context.get(CURRENT)
            found = by_owner.get(owner)
            if found is None:
                by_owner[owner] = [handle]
            else:
                found.append(handle)
        if len(by_owner) < 2:
            return by_owner.items()
        groups = list(by_owner.items())
        self._rng.shuffle(groups)
        return groups

    def _work_done(self, process: Process) -> None:
        process.busy = False
        if process.state is _RUNNING:
            self.release(process)

    def release(self, process: Process) -> None:
        """Schedules the callbacks that became ready while the process was paused or busy."""
        held, process.held = process.held, []
        self._ready.extend(held)

    # ---- tasks and executors

    def create_future(self) -> asyncio.Future[Any]:
        future = SimFuture(loop=self)
        future.number = self.next_number()
        return future

    def create_task(  # type: ignore[override]  # only what the product uses of it
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = SimTask(coro, self, name, context)
        process = CURRENT.get() if context is None else context.get(CURRENT)
        if process is not None:
            tasks = process.tasks
            tasks[task] = None
            if not task.number % 256:
                process.tasks = {t: None for t in tasks if not t.done()}
        return task

    def run_in_executor(  # type: ignore[override]  # only what the product uses of it
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs the function on the loop, at a random moment within the duration that the host draws for the job. The
        future gets the result at the end of that duration."""
        process = CURRENT.get()
        delay = 0.0 if process is None else process.executor_delay()
        acts_after = self._rng.random() * delay
        future = self.create_future()
        outcome: list[tuple[bool, Any]] = []

        def act() -> None:
            try:
                outcome.append((True, func(*args)))
                STEP.units = 0  # in production it runs in a thread
            except Exception as error:  # noqa: BLE001 - the future gets the error, as from an executor's thread
                outcome.append((False, error))
            self.call_later(delay - acts_after, settle)

        def settle() -> None:
            done, value = outcome[0]
            if future.done():
                return
            if done:
                future.set_result(value)
            else:
                future.set_exception(value)

        self.call_later(acts_after, act)
        return future

    # ---- the network

    async def create_connection(  # type: ignore[override]  # only what the product uses of it
        self, protocol_factory: Callable[[], Any], host: str, port: int, *, ssl: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        if ssl is not None:
            raise RealWorldError("TLS is not simulated: use a PLAINTEXT listener.")
        connected: tuple[Any, Any] = await self.network.connect(protocol_factory, host, port)
        return connected

    async def create_server(  # type: ignore[override]  # only what the product uses of it
        self, protocol_factory: Callable[[], Any], *, sock: Any = None, start_serving: bool = True, **options: Any
    ) -> Any:
        server = self.network.serve(protocol_factory, sock)
        if start_serving:
            await server.start_serving()
        return server

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> NoReturn:
        raise RealWorldError(f"A simulation has no name service; {host}:{port} was looked up.")

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> NoReturn:  # type: ignore[override]  # always raises
        raise RealWorldError("A simulation watches no real file descriptor.")

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> NoReturn:  # type: ignore[override]  # always raises
        raise RealWorldError("A simulation watches no real file descriptor.")

    async def _make_subprocess_transport(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorldError("A simulation starts no real process.")

    def _make_socket_transport(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorldError("A simulation uses no real socket.")

    def _check_closed(self) -> None:
        """Does nothing: after the end of the run, coroutines that are being closed may still call a closed loop."""

    def _process_events(self, event_list: Any) -> None:
        """Does nothing: the loop has no selector."""

    def _write_to_self(self) -> None:
        """Does nothing: the loop has no selector to wake up."""
