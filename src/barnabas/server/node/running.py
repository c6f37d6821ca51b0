"""Shell: tasks that run exactly as long as a block, and waits that end when the node is stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from barnabas.core.errors import BarnabasError

T = TypeVar("T")


class StoppedError(BarnabasError):
    """The node was stopped while it was starting."""


@contextlib.asynccontextmanager
async def running(*mains: Callable[[], Any]) -> AsyncIterator[None]:
    """Run each of `mains` as a task during the block. A task that fails ends the block with its exception."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(main()) for main in mains]
        await asyncio.sleep(0)  # lets every task run its first step, in which it acquires its resources
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. If `stop` is set first, cancels `work` and raises StoppedError."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise StoppedError("The node was stopped before it was ready.")
    finally:
        for waiting in (task, stopped):
            waiting.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
