"""Shell: a limit of what runs at the same time, which may change meanwhile; stands for a thread pool of Kafka."""

from __future__ import annotations

import asyncio


class Slots:
    """A semaphore with another number of slots from time to time. With fewer slots, what runs is not interrupted."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._semaphore = asyncio.Semaphore(count)
        self._surplus = 0
        """The slots that are still to be taken away."""

    def resize(self, count: int) -> None:
        for _ in range(self.count, count):
            if self._surplus:
                self._surplus -= 1
            else:
                self._semaphore.release()
        self._surplus += max(self.count - count, 0)
        self.count = count

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()
        while self._surplus:
            self._surplus -= 1
            await self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._semaphore.release()
