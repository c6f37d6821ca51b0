"""Value: a simulated operating-system process: whose a callback is, and whether it may run.

A context variable says in which process code runs; tasks, timers and callbacks inherit it. So one loop can hold back
everything of a paused process and forget everything of a dead one, as the operating system would.
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


class Life(Enum):
    """What the operating system does with a process."""

    RUNNING = "running"
    PAUSED = "paused"
    """SIGSTOP: nothing of it runs; its sockets still take bytes and its timers are late."""
    DEAD = "dead"
    """Nothing of it will ever run again."""


class Process:
    """One life of a program on a host. A restart is another process."""

    def __init__(self, name: str, host: str, executor_delay: Callable[[], float]) -> None:
        self.name = name
        self.host = host
        self.life = Life.RUNNING
        self.executor_delay = executor_delay
        """Seconds that a job for an executor takes on this host now."""
        self.held: list[SimHandle] = []
        """What became ready while it was paused, in order."""
        self.tasks: dict[SimTask[Any], None] = {}
        self.transports: dict[SimTransport, None] = {}
        self.context = Context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"Process({self.name}, {self.life.value})"

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call something as if this process did."""
        return self.context.copy().run(function, *args)

    def spawn(self, loop: SimLoop, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """A task of this process."""
        return loop.create_task(coroutine, name=name, context=self.context.copy())

    def bury(self) -> None:
        """After its death, at the end of the world: close what its tasks left open, without a word.

        Until then they are kept: a coroutine that is collected runs its `finally` blocks whenever the collector comes
        by, and that is nothing a replay could repeat.
        """
        tasks, self.tasks = list(self.tasks), {}
        for task in tasks:
            self.run(bury, task)


def bury(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task that will never run again, whatever it has to say to that."""
    if task.done():
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro()
    with contextlib.suppress(BaseException), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one that never began was never awaited: so it goes
        coroutine.close()


CURRENT: ContextVar[Process | None] = ContextVar("barnabas_sim_process", default=None)
"""The process whose code runs; None is the test itself, which is never paused, cut off or killed."""
