"""Value: a simulated operating-system process. Each callback belongs to a process, and runs only if the process may
run.

A context variable holds the process whose code runs; tasks, timers and callbacks inherit the variable. So one event
loop can hold back all callbacks of a paused process and drop all callbacks of a killed one, as an operating system
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from barnabas.testing.sim.handles import SimHandle
    from barnabas.testing.sim.loop import SimLoop, SimTask
    from barnabas.testing.sim.network import SimTransport

T = TypeVar("T")


class ProcessState(Enum):
    """The scheduling state of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    """After SIGSTOP: no code of the process runs. Its sockets still accept bytes, and its timers fire late."""
    DEAD = "dead"
    """No code of the process will ever run again."""


class Process:
    """One run of a program on a host. A restart creates another process."""

    def __init__(self, name: str, host: str, executor_delay: Callable[[], float]) -> None:
        self.name = name
        self.host = host
        self.state = ProcessState.RUNNING
        self.executor_delay = executor_delay
        """Returns the seconds that the next executor job takes on this host."""
        self.held: list[SimHandle] = []
        """The callbacks that became ready while the process was paused or busy, in order."""
        self.takes_time = False
        """Whether the work that the process counts (`core/work`) takes simulated time."""
        self.busy = False
        """Whether the time of the last step's work is not over yet."""
        self.tasks: dict[SimTask[Any], None] = {}
        self.transports: dict[SimTransport, None] = {}
        self.context = Context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"Process({self.name}, {self.state.value})"

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Calls `function` in the context of this process."""
        return self.context.copy().run(function, *args)

    def spawn(self, loop: SimLoop, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Starts a task in the context of this process."""
        return loop.create_task(coroutine, name=name, context=self.context.copy())

    def discard(self) -> None:
        """Closes the coroutines of a killed process at the end of the run, without any warnings.

        Until then the process keeps its tasks. A coroutine that is garbage-collected runs its `finally` blocks at a
        moment that a replay could not repeat.
        """
        tasks, self.tasks = list(self.tasks), {}
        for task in tasks:
            self.run(discard, task)


def discard(task: asyncio.Task[Any]) -> None:
    """Closes the coroutine of a task that will never run again, and ignores every exception of the coroutine."""
    if task.done():
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own attribute
    coroutine: Any = task.get_coro()
    with contextlib.suppress(BaseException), warnings.catch_warnings():  # the code of a dead process has no effect
        warnings.simplefilter("ignore", RuntimeWarning)  # "never awaited", of a task that never began
        coroutine.close()


CURRENT: ContextVar[Process | None] = ContextVar("barnabas_sim_process", default=None)
"""The process whose code runs. None is the test itself, which cannot be paused, partitioned or killed."""
