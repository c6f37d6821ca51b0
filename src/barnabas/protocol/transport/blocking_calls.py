"""Shell: blocking calls beside the event loop that neither a cancelled task nor the end of the process waits for.

`asyncio.to_thread` runs calls in threads for which the end of the loop waits. A call to a server that never finishes
its answer would keep the process alive after SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


async def run_beside(function: Callable[..., T], /, *arguments: Any) -> T:
    """`function(*arguments)` in a daemon thread of its own. If the caller is cancelled, the call goes on, and its
    result is dropped."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    call = partial(copy_context().run, function, *arguments)

    def run() -> None:
        try:
            settle = partial(_set_result, result, call())
        except BaseException as error:  # noqa: BLE001 - every error is the caller's
            settle = partial(_set_exception, result, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(settle)

    name = getattr(function, "__name__", "call")
    Thread(target=run, name=f"barnabas-{name}", daemon=True).start()
    return await result


def _set_result(result: asyncio.Future[Any], value: object) -> None:
    if not result.done():
        result.set_result(value)


def _set_exception(result: asyncio.Future[Any], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)
