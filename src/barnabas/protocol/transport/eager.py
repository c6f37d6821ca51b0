"""Shell: run a coroutine up to its first suspension at once, and the rest, if there is any, as a task.

Python 3.12 calls this an eager task. Here it does two things: a request that never suspends costs no task and no turn
of the loop, and "whatever fixes order happens before the first await" becomes true for requests of one connection.

Up to that suspension there is no task. What asks for one (`asyncio.timeout`) awaits `core.tasks.enter_task` first.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Finished(Generic[T]):
    """The coroutine ended without suspending; this is what it returned."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


def start(coroutine: Coroutine[Any, Any, T]) -> Finished[T] | Coroutine[Any, Any, T]:
    """Run to the first suspension. Returns `Finished`, or a coroutine for the rest; exceptions before that
    propagate.
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
    # `awaited` is the future the coroutine stopped at. Yielding it again lets the task that runs us wait for it;
    # from then on values and exceptions pass straight through, as `yield from` would do.
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - cancellation too belongs to the coroutine inside
            step: Callable[[Any], Any] = coroutine.throw
            argument: Any = error
        else:
            step, argument = coroutine.send, sent
        try:
            awaited = step(argument)
        except StopIteration as stop:
            result: T = stop.value
            return result
