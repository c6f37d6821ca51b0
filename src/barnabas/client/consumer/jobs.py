"""Shell: the background tasks of a consumer: at most one of each name. The next poll raises their errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError

log = logging.getLogger("barnabas.client")


class Jobs:
    """Owns background tasks; `close` cancels and awaits them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failure: BarnabasError | None = None

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work()`, unless a job of that name is running. The end of the job wakes poll."""
        if name in self._running:
            return
        task = asyncio.get_running_loop().create_task(work(), name=f"barnabas-consumer-{name}")
        self._running[name] = task
        task.add_done_callback(lambda done: self._on_done(name, done))

    async def finish(self, name: str, deadline: float) -> None:
        """Wait until no job of that name is running, at most until the deadline (in seconds of the loop's clock)."""
        task = self._running.get(name)
        if task is not None:
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait((task,), timeout=max(left, 0.0))

    def check(self) -> None:
        """Raise the error of a failed job, once. Retriable errors are only logged, and poll starts the job again."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_done(self, name: str, task: asyncio.Task[None]) -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, KafkaError) and error.retriable:
                log.info("%s of the consumer failed, retrying: %s", name, error)
            elif isinstance(error, BarnabasError):
                self._failure = error
            elif error is not None:
                self._failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name} of the consumer failed: {error!r}")
        self._wake()
