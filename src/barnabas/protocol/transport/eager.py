"""Shell: run a coroutine at once up to its first suspension; the caller runs the rest as a task.

Python 3.12 calls this an eager task. Eager starts have two effects: a request that never suspends needs no task and no
turn of the event loop, and the handlers of one connection's requests reach their first suspension in request order.

Before that suspension there is no current task. A coroutine that needs one, for example for `asyncio.timeout`, awaits
`core.tasks.enter_task` first.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from barnabas.protocol.transport.ports import Finished

T = TypeVar("T")


def start(coroutine: Coroutine[Any, Any, T]) -> Finished[T] | Coroutine[Any, Any, T]:
    """Run the coroutine to its first suspension. Returns `Finished`, or a coroutine that runs the rest.

    An exception that the coroutine raises before its first suspension propagates.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        return Finished(stop.value)
    return _rest(coroutine, awaited)


async def _rest(coroutine: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _resume(coroutine, awaited)


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    # `awaited` is the future that the coroutine suspended on. Yielding it makes the current task wait for it; after
    # that, values and exceptions pass through unchanged, as with `yield from`.
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the inner coroutine gets cancellation, too
            step: Callable[[Any], Any] = coroutine.throw
            argument: Any = error
        else:
            step, argument = coroutine.send, sent
        try:
            awaited = step(argument)
        except StopIteration as stop:
            result: T = stop.value
            return result
