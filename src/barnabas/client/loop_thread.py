"""Shell: an event loop in a thread of its own, and the calls of other threads that run on it.

A call can be made by any thread and by a signal handler, and interrupted by an exception at any moment: the work on the
loop is cancelled then.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from barnabas.client.errors import ClientClosedError, ForkedError

SIGNAL_STEP_S: Final = 0.2
"""The longest time by which a signal handler is delayed while a call waits."""

R = TypeVar("R")


class LoopThread:
    """An event loop that runs in a daemon thread of its own (on uvloop where it is installed)."""

    def __init__(self, name: str = "barnabas-client") -> None:
        self.loop = _new_loop()
        self._process = os.getpid()
        self._calls: set[_Call[Any]] = set()
        """The calls that threads wait for."""
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()

    @property
    def is_of_this_process(self) -> bool:
        """False in a process that was forked after the thread was started."""
        return self._process == os.getpid()

    def run(self, work: Callable[[], Awaitable[R]]) -> R:
        """Run `work` on the loop and wait for it. An interrupt while waiting cancels it.

        Raises ForkedError in a process that was forked, where the thread does not exist, and ClientClosedError if the
        loop is stopped before the work has ended.
        """
        if not self.is_of_this_process:
            raise ForkedError("This client")
        if self.is_current:
            raise RuntimeError(
                "A blocking client was called from one of its own callbacks; this would never return. "
                "Use the asyncio client, or do the work outside of the callback."
            )
        call = _Call(work)
        self._calls.add(call)
        try:
            try:
                self.loop.call_soon_threadsafe(call.begin)
            except RuntimeError:
                raise _closed_meanwhile() from None
            call.wait()
        except BaseException:  # KeyboardInterrupt, too: the work must not go on without its caller
            self._cancel(call)
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def _cancel(self, call: _Call[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(call.cancel)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return threading.current_thread() is self._thread

    def finish(self, work: Callable[[], Awaitable[None]], *, within_s: float | None = None) -> None:
        """Run `work`, the end of the client. With `within_s`, wait no longer than that, and raise no error of it."""
        call = _Call(work)
        self.loop.call_soon_threadsafe(call.begin)
        if within_s is None:
            call.wait()
            call.result()
        else:
            call.wait(within_s)

    def end_after(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run `work` on the loop, and end the thread afterwards. Does not wait."""

        def start() -> None:
            task = self.loop.create_task(work())
            task.add_done_callback(lambda done: self.loop.stop())

        if self.is_of_this_process:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(start)

    def stop(self) -> None:
        """Cancel the loop's tasks, stop the loop and wait for its thread; nothing is closed. (A task that is pending
        when the interpreter removes it would print asyncio's internals.)"""
        if self.is_of_this_process and not self.loop.is_closed():
            self.end_after(_cancelled)
            self._thread.join(1.0)

    def close(self) -> None:
        """Cancel the loop's tasks, stop the loop and end the thread. Calls of other threads raise ClientClosedError."""
        if not self.is_of_this_process:
            return
        self.end_after(_cancelled)
        self._thread.join()

    def _run_loop(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()
            for call in list(self._calls):
                call.fail(_closed_meanwhile())


class _Call(Generic[R]):
    """One call of a thread: a coroutine on the loop. The caller waits on a lock that the loop releases; the loop never
    waits for a lock that a caller holds, so that a signal handler may make calls, too."""

    def __init__(self, work: Callable[[], Awaitable[R]]) -> None:
        self._work = work
        self._task: asyncio.Task[R] | None = None
        self._cancelled = False
        self._ended = threading.Lock()
        self._ended.acquire()
        self._outcome: Callable[[], R] | None = None

    def begin(self) -> None:
        """Start the work. Called on the loop."""
        if not self._cancelled:
            self._task = asyncio.get_running_loop().create_task(_awaited(self._work))
            self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Cancel the work. Called on the loop."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # asyncio would log the exception of a call that was interrupted
        if task.cancelled() and not self._cancelled:
            self.fail(_closed_meanwhile())
        else:
            self._end(task.result)

    def fail(self, error: Exception) -> None:
        """Let the caller raise an error, if the work has not ended yet."""

        def outcome() -> R:
            raise error

        self._end(outcome)

    def _end(self, outcome: Callable[[], R]) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._ended.release()

    def wait(self, timeout_s: float = math.inf) -> None:
        """Wait until the work has ended, in steps: a signal does not end a wait that begins just after the signal has
        arrived, or that is the main thread's while another thread has got the signal. Its handler runs between two
        steps."""
        until = time.monotonic() + timeout_s
        while not self._ended.acquire(timeout=max(0.0, min(SIGNAL_STEP_S, until - time.monotonic()))):
            if time.monotonic() >= until:
                return

    def result(self) -> R:
        assert self._outcome is not None
        return self._outcome()


async def _awaited(work: Callable[[], Awaitable[R]]) -> R:
    return await work()


def _closed_meanwhile() -> ClientClosedError:
    return ClientClosedError("This client", "The client was closed while a call waited.")


async def _cancelled() -> None:
    """Cancel all other tasks of this loop, and wait shortly until they have ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=0.5)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
