"""Value: the callbacks and timers that wait on a simulated loop: asyncio's handles, with less work to create, run and
order them.

A run of the cluster scenario creates a hundred thousand handles. They have the interface of asyncio's handles.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import format_helpers
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.sim.loop import SimLoop


class SimHandle(asyncio.Handle):
    """A handle without asyncio's debug mode: it does not keep the traceback of its creation."""

    # Attributes of asyncio.Handle that the type stubs omit.
    _callback: Any
    _args: Any
    _loop: SimLoop
    _context: Context
    _source_traceback = None
    _repr = None
    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: Any, loop: SimLoop, context: Context | None) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None

    def on_error(self, error: BaseException) -> None:
        """Handles an exception of the callback as `Handle._run` does."""
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise error
        source = format_helpers._format_callback_source(self._callback, self._args)
        self._loop.call_exception_handler(
            {"message": f"Exception in callback {source}", "exception": error, "handle": self}
        )


class SimTimer(SimHandle, asyncio.TimerHandle):
    """A timer. The loop's heap has pairs (time, timer), which compiled code compares. `__lt__` is always False, so that
    only the time decides. The order of timers for the same time is unspecified, but the same in every replay."""

    _when: float
    _scheduled: bool
    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: Any, loop: SimLoop, context: Context | None
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            if self._scheduled:
                self._loop.on_timer_cancelled()

    def __lt__(self, other: object) -> bool:
        return False

    __eq__ = object.__eq__
    __hash__ = object.__hash__
