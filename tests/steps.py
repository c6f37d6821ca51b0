"""The longest step of a coroutine, in the units of `core/work`: steps that are too long are so on any machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from barnabas.core import work

R = TypeVar("R")


async def longest_step(running: Awaitable[R]) -> tuple[R, int]:
    """The result, and the units of the longest step."""
    longest = work.STEP.units = 0
    task = asyncio.ensure_future(running)
    while not task.done():
        await asyncio.sleep(0)
        longest, work.STEP.units = max(longest, work.STEP.units), 0
    return task.result(), longest
