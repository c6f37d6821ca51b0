"""Shell: makes calls that are cancelled (asyncio) or interrupted by an exception of a signal handler (blocking).

The moment of the interruption is counted: the first attempt of a call is interrupted at its first moment, the next
attempt of the same call at its second moment, until an attempt ends uninterrupted; then the count begins again. So each
call is interrupted everywhere, and as a program is in another state at each attempt, in many states.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import opcode
import random
import signal
import sys
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Self

HARNESS: Final = str(Path(__file__).parent)
HANG_S: Final = 60.0
"""The longest time of a call that waits for less than a second; a longer one hangs."""
RANDOM_WITHIN_S: Final = 0.004
"""Signals at random moments arrive within this time after the begin of the call."""

Call = Callable[[], Any]


class Interrupted(BaseException):
    """What the signal handler raises; and, with asyncio, what an attempt raises that was cancelled."""


class HangError(BaseException):
    """A call did not return within `HANG_S`."""


class Attempts(ABC):
    """Makes calls. `runs` counts the attempts of calls that can be interrupted, `interrupted` those that were, by the
    name of the call."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.runs = 0
        self.interrupted: Counter[str] = Counter()
        self.history: deque[str] = deque(maxlen=12)
        """The last attempts, for the message of a failure."""
        self._moments: Counter[str] = Counter()

    @abstractmethod
    async def plain(self, call: Call) -> Any:
        """Make a call, and return its result."""

    @abstractmethod
    async def _make(self, name: str, call: Call) -> Any:
        """Make a call that is interrupted. Raises Interrupted if it was."""

    async def attempt(self, name: str, call: Call) -> Any:
        """Make a call once. Raises Interrupted if it was interrupted."""
        try:
            result = await self._make(name, call)
        except Interrupted as interrupt:
            self.interrupted[name] += 1
            where = traceback.extract_tb(interrupt.__traceback__)[-4:]
            self.history.append(f"{name}, interrupted at {' > '.join(f'{w.name}:{w.lineno}' for w in where)}")
            raise
        self.history.append(name)
        return result

    async def repeated(self, name: str, call: Call) -> Any:
        """Make a call again and again until it is not interrupted."""
        while True:
            try:
                return await self.attempt(name, call)
            except Interrupted:
                continue

    async def plainly(self, name: str, call: Call) -> Any:
        """Make a call that is not interrupted."""
        return await self.plain(call)

    async def tried(self, name: str, call: Call) -> bool:
        """Make a call whose result does not matter. Returns whether it was not interrupted."""
        try:
            await self.attempt(name, call)
        except Interrupted:
            return False
        return True


class Cancelling(Attempts):
    """Cancels the current task at the n-th suspension of the call: while the call waits, or just as what it waits for
    has ended (its result would be lost if the call relied on it)."""

    async def plain(self, call: Call) -> Any:
        async with asyncio.timeout(HANG_S):
            result = call()
            return await result if inspect.isawaitable(result) else result

    async def _make(self, name: str, call: Call) -> Any:
        task = asyncio.current_task()
        assert task is not None
        at, ends = divmod(self._moments[name], 2)
        result = call()
        if not inspect.isawaitable(result):
            return result
        step = _CancelledStep(task, result, at, just_ended=bool(ends))
        try:
            async with asyncio.timeout(HANG_S):
                result = await step
        except asyncio.CancelledError as cancelled:
            if not step.was_cancelled:
                raise
            task.uncancel()
            self.runs += 1
            self._moments[name] += 1
            raise Interrupted().with_traceback(_taken_from(cancelled)) from None
        self.runs += step.has_suspended
        if step.was_cancelled:  # the call has ended all the same
            task.uncancel()
            self._moments[name] += 1
        else:
            self._moments[name] = 0
        return result


def _taken_from(cancelled: asyncio.CancelledError) -> TracebackType | None:
    """The traceback, which the exception no longer has afterwards: asyncio keeps the exception until the task suspends
    again, and would so keep the call, and the iterator whose step was cancelled."""
    trace, cancelled.__traceback__ = cancelled.__traceback__, None
    return trace


class _CancelledStep:
    """Awaits a call, and cancels the task at one of its suspensions."""

    def __init__(self, task: asyncio.Task[Any], call: Awaitable[Any], at: int, *, just_ended: bool) -> None:
        self.was_cancelled = False
        self.has_suspended = False
        self._task = task
        self._call = call
        self._at = at
        self._just_ended = just_ended
        self._due: asyncio.Handle | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        inner = self._call.__await__()
        thrown: BaseException | None = None
        try:
            for count in itertools.count():
                try:
                    waits_for = inner.send(None) if thrown is None else inner.throw(thrown)  # type: ignore[attr-defined]
                except StopIteration as end:
                    return end.value
                self.has_suspended = True
                if count == self._at:
                    self._arrange(waits_for)
                thrown = None
                try:
                    yield waits_for
                except BaseException as error:  # noqa: BLE001 - passed on to the call
                    thrown = error
        finally:
            thrown = None  # else the frame would keep the exception, and what it holds
            if self._due is not None:
                self._due.cancel()
            self._at = -1

    def _arrange(self, waits_for: asyncio.Future[Any] | None) -> None:
        if self._just_ended and waits_for is not None:
            waits_for.add_done_callback(lambda _: self._cancel())  # runs before the task goes on
        else:
            self._due = self._task.get_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self._at >= 0:
            self.was_cancelled = True
            self._task.cancel()


class Interrupting(Attempts):
    """Interrupts blocking calls, in turn: by an exception at the n-th point where CPython would run a signal handler,
    and by a real signal at a random moment. Used by the main thread, as `with Interrupting(seed) as attempts`."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._guarded = False
        """Whether the next signal means that the call hangs."""
        self.on_signal: Callable[[], None] | None = None
        """Called once by the signal handler, instead of raising Interrupted."""

    def __enter__(self) -> Self:
        self._timer = signal.getitimer(signal.ITIMER_REAL)  # of pytest's time-out
        self._handler = signal.signal(signal.SIGALRM, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGALRM, self._handler)
        signal.setitimer(signal.ITIMER_REAL, *self._timer)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.on_signal is not None:
            action, self.on_signal = self.on_signal, None
            signal.setitimer(signal.ITIMER_REAL, HANG_S)
            self._guarded = True
            action()
        elif self._guarded:
            raise HangError
        else:
            self._guarded = True
            if frame is not None and not _is_harness(frame) and not _is_swallowed(frame):
                raise Interrupted

    async def plain(self, call: Call) -> Any:
        self._guarded = True
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
        try:
            return call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._guarded = False

    async def signalled(self, after_s: float, action: Callable[[], None], call: Call) -> Any:
        """Make a call during which a signal handler runs `action`; if the call ends earlier, `action` runs then."""
        self.on_signal = action
        signal.setitimer(signal.ITIMER_REAL, after_s)
        try:
            return call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._guarded = False
            if self.on_signal is not None:
                self.on_signal = None
                action()

    async def _make(self, name: str, call: Call) -> Any:
        self.runs += 1
        if self.runs % 3 == 0:
            signal.setitimer(signal.ITIMER_REAL, self.rng.uniform(1e-6, RANDOM_WITHIN_S), HANG_S)
            try:
                return call()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self._guarded = False
        points = Points(self._moments[name])
        try:
            result = await self.plain(lambda: points.run(call))
        except Interrupted:
            self._moments[name] += 1
            raise
        self._moments[name] = 0
        return result


_CALLS: Final = frozenset(opcode.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX") if name in opcode.opmap)
_JUMPS: Final = frozenset(number for name, number in opcode.opmap.items() if name.startswith("JUMP_BACKWARD"))
_SPREAD: Final = opcode.opmap["CALL_FUNCTION_EX"]


class Points:
    """Raises Interrupted at the n-th point of a call at which CPython looks for signals: when a function begins, after
    a jump backward, after a call of anything but a Python function (whose frame the interpreter pushes itself, without
    such a look at its end), and within a lock's `acquire`."""

    def __init__(self, at: int) -> None:
        self._left = at
        self._codes: dict[CodeType, bytes] = {}
        self._last: dict[FrameType, int] = {}
        """The opcode that a frame runs."""
        self._entered: dict[FrameType, str] = {}
        """The name of the Python function that the opcode of a frame has entered."""
        self._through_c: set[FrameType] = set()
        """Frames whose opcode has called a function in C."""
        self._throwing: FrameType | None = None
        """The frame that calls a generator's `throw`, which lets the generator go on without a look for signals."""

    def run(self, call: Call) -> Any:
        sys.setprofile(self._on_profile)
        sys.settrace(self._on_call)
        try:
            return call()
        finally:
            sys.settrace(None)
            sys.setprofile(None)
            for frames in (self._last, self._entered, self._through_c):
                frames.clear()  # what a frame holds is released when the exception is
            self._throwing = None

    def _point(self) -> None:
        if self._left == 0:
            self._left = -1
            raise Interrupted
        self._left -= 1

    def _on_profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_return":
            self._through_c.add(frame)
            self._throwing = None
        elif event == "c_call" and arg.__name__ == "throw":
            self._throwing = frame
        elif event == "c_call" and arg.__name__ == "acquire" and not _is_harness(frame):
            self._point()

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_back is not None:
            self._entered[frame.f_back] = frame.f_code.co_name
        if _is_harness(frame) or _is_swallowed(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._last.pop(frame, None)
        if self._throwing is None or frame.f_back is not self._throwing:
            self._point()
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            previous = self._last.get(frame)
            entered = self._entered.pop(frame, None)
            through_c = frame in self._through_c
            self._through_c.discard(frame)
            code = self._codes.get(frame.f_code)
            if code is None:
                code = self._codes[frame.f_code] = frame.f_code.co_code
            self._last[frame] = code[frame.f_lasti]
            is_inlined = entered is not None and entered != "__init__" and previous != _SPREAD and not through_c
            if previous in _JUMPS or (previous in _CALLS and not is_inlined):
                self._point()
        elif event in ("exception", "return"):
            self._last.pop(frame, None)
        return self._on_event


def _is_harness(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(HARNESS)


def _is_swallowed(frame: FrameType | None) -> bool:
    """Whether an exception would be printed and not raised: in a finalizer, or a callback of a weak reference."""
    while frame is not None and not _is_harness(frame):
        if frame.f_code.co_name in ("__del__", "_remove", "remove"):
            return True
        frame = frame.f_back
    return False


def drive(program: Coroutine[Any, Any, Any]) -> Any:
    """Run a program whose calls are blocking ones, so that it never suspends."""
    try:
        program.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a program of blocking calls has suspended")
