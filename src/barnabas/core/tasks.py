"""Shell: what coroutines need of the task that they run in."""

from __future__ import annotations

import asyncio


async def enter_task() -> None:
    """From here on the caller runs in a task, which `asyncio.timeout` and cancelling ask for.

    A connection runs a request up to its first suspension without one (`net.eager`); this is that suspension. Whatever
    fixes the order of requests comes before it.
    """
    if asyncio.current_task() is None:
        await asyncio.sleep(0)
