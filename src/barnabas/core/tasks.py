"""Shell: lets a coroutine ensure that it runs in an asyncio task."""

from __future__ import annotations

import asyncio


async def enter_task() -> None:
    """Suspend, unless the caller runs in a task. Afterwards `asyncio.timeout` and cancellation work.

    A connection runs a handler without a task up to the handler's first suspension (`protocol/transport/eager.py`).
    Code that depends on the order of requests must run before this call.
    """
    if asyncio.current_task() is None:
        await asyncio.sleep(0)
