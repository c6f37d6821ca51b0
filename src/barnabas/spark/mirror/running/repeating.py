"""Shell: repeats a job at its interval until the pair is stopped, and keeps the error of its last attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.spark.mirror.errors import MirrorDataLossError

log = get_logger("barnabas.mirror")

RETRY_S_MAX: Final = 30.0
"""A job that has failed is repeated after its interval, or after this time if that is shorter."""
_FIRST_RETRY_S: Final = 1.0


class Repeater:
    """The jobs of one pair."""

    def __init__(self, pair: str) -> None:
        self._pair = pair
        self._stopping = asyncio.Event()
        self.errors: dict[str, str] = {}
        """The jobs whose last attempt has failed, and why."""

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()

    async def pause(self, seconds: float) -> bool:
        """Wait. Returns whether the pair was stopped meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def repeat(self, name: str, interval_s: float, job: Callable[[], Awaitable[None]]) -> None:
        """Run the job now and at each interval. A job that fails is tried again, and its error is logged when it is
        another one than before. MirrorDataLossError ends the pair."""
        retry_s = _FIRST_RETRY_S
        while not self.is_stopping:
            if await self.attempt(name, job):
                pause_s, retry_s = interval_s, _FIRST_RETRY_S
            else:
                pause_s, retry_s = min(interval_s, retry_s), min(2 * retry_s, RETRY_S_MAX)
            if await self.pause(pause_s):
                return

    async def attempt(self, name: str, job: Callable[[], Awaitable[None]]) -> bool:
        """Run the job once. Returns whether it has succeeded."""
        try:
            await job()
        except MirrorDataLossError:
            raise
        except BarnabasError as error:
            if self.errors.get(name) != str(error):
                log.warning("a job of a pair failed and is repeated", pair=self._pair, job=name, reason=str(error))
            self.errors[name] = str(error)
            return False
        if self.errors.pop(name, None) is not None:
            log.info("a job of a pair succeeds again", pair=self._pair, job=name)
        return True
