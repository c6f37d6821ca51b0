"""Shell: work that outlives its caller, for calls that may be cancelled and then repeated; and the end of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from barnabas.client.errors import ClientClosedError
from barnabas.core.errors import BarnabasError

R = TypeVar("R")


class Resumed(Generic[R]):
    """At most one piece of work in a task. A caller that is cancelled leaves the task running, and the next caller
    waits for the same task, or gets its outcome if it has ended meanwhile."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[R] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether work was begun whose outcome no caller has got."""
        return self._task is not None

    async def run(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Wait for the work that is under way; if there is none, begin `work` and wait for it."""
        task = self._task
        if task is None:
            task = self._task = asyncio.get_running_loop().create_task(work(), name=self._name)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise ClientClosedError("This client", "The call was ended by another call, such as close().") from None
            if not task.cancelled():
                task = None  # the caller was cancelled, not the work: its outcome is for the next caller
            raise
        finally:
            if task is not None and task is self._task:
                self.drop()

    def drop(self) -> None:
        """Forget the outcome of work that has ended."""
        task, self._task = self._task, None
        if task is not None and task.done() and not task.cancelled():
            task.exception()  # asyncio logs the exception of a task if no code has retrieved it

    async def settle(self) -> None:
        """Wait for the end of the work that is under way, whatever its outcome is, and forget the outcome."""
        task = self._task
        if task is not None:
            await asyncio.wait((task,))
            self.drop()

    async def stop(self) -> None:
        """Cancel the work that is under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
            self.drop()


class Closing:
    """The end of a client: a farewell to the brokers, at most for a time, and then the end of tasks and connections.

    The first call begins it, and it goes on when that call is cancelled. Every later call waits for it; a shorter
    time-out of a later call holds for the farewell, too.
    """

    def __init__(self, name: str) -> None:
        self._work: Resumed[None] = Resumed(name)
        self._ended: asyncio.Future[None] | None = None
        self._patience: asyncio.Timeout | None = None

    @property
    def has_begun(self) -> bool:
        return self._ended is not None

    async def run(
        self,
        timeout_s: float | None,
        farewell: Callable[[], Coroutine[Any, Any, None]],
        stop: Callable[[bool], Coroutine[Any, Any, None]],
    ) -> None:
        """Run `farewell` for at most `timeout_s`, and then `stop`, with whether that time was too short."""
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        if self._ended is None:
            ended = self._ended = loop.create_future()
            await self._work.run(lambda: self._run(until, farewell, stop, ended))
            return
        patience = self._patience
        if patience is not None and until is not None and until < (patience.when() or until + 1):
            patience.reschedule(until)
        await asyncio.shield(self._ended)

    async def _run(
        self,
        until: float | None,
        farewell: Callable[[], Coroutine[Any, Any, None]],
        stop: Callable[[bool], Coroutine[Any, Any, None]],
        ended: asyncio.Future[None],
    ) -> None:
        is_late = False
        try:
            async with asyncio.timeout_at(until) as self._patience:
                await farewell()
        except TimeoutError as error:
            if isinstance(error, BarnabasError):
                raise
            is_late = True
        finally:
            self._patience = None
            try:
                await stop(is_late)
            finally:
                ended.set_result(None)
