"""Shell: tasks that live exactly as long as a block, and waits that end when the node is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from barnabas.core.errors import BarnabasError

T = TypeVar("T")


class StoppedError(BarnabasError):
    """The node was told to stop while it was starting."""


@contextlib.asynccontextmanager
async def running(*mains: Callable[[], Any]) -> AsyncIterator[None]:
    """Tasks that live exactly as long as the block; one that fails ends the block with its exception."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(main()) for main in mains]
        await asyncio.sleep(0)  # they own what is theirs from their first step on
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises StoppedError when `stop` is set first; `work` is cancelled then."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise StoppedError("The node was told to stop before it was ready.")
    finally:
        for waiting in (task, stopped):
            waiting.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
