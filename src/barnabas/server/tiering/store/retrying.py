"""Shell: an object store whose calls have deadlines, and are repeated with a growing pause.

A store may fail, be slow, or never respond. Reads, sizes and deletions are repeated: they change nothing, or end in the
same state. A `put` is not repeated under the same name, because an earlier request that is still under way could
replace the complete object later; the caller copies the segment again under another name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from barnabas.core.backoff import Backoff
from barnabas.core.buffers import Buffer
from barnabas.core.objects.ports import ObjectStore
from barnabas.core.rng import Rng
from barnabas.server.tiering.errors import StoreUnavailableError

T = TypeVar("T")


class StorePatience(Struct, frozen=True):
    """How long a call may take, and how often it is repeated."""

    timeout_ms: int
    """The deadline of one attempt. For a `put`: the longest time without progress."""
    attempts: int
    backoff: Backoff


class RetryingStore:
    """An object store over another one."""

    def __init__(self, store: ObjectStore, patience: StorePatience, rng: Rng) -> None:
        self._store = store
        self._patience = patience
        self._rng = rng

    async def put(self, name: str, parts: AsyncIterator[Buffer]) -> None:
        loop, timeout_s = asyncio.get_running_loop(), self._patience.timeout_ms / 1000

        async def watched() -> AsyncIterator[Buffer]:
            async for part in parts:
                yield part
                deadline.reschedule(loop.time() + timeout_s)

        try:
            async with asyncio.timeout(timeout_s) as deadline:
                await self._store.put(name, watched())
        except TimeoutError:
            raise self._silent(f"storing {name}") from None

    async def get(self, name: str, start: int, end: int) -> bytes:
        return await self._repeat(f"reading {name}", lambda: self._store.get(name, start, end))

    async def read(self, name: str) -> bytes:
        return await self._repeat(f"reading {name}", lambda: self._store.read(name))

    async def size(self, name: str) -> int:
        return await self._repeat(f"the size of {name}", lambda: self._store.size(name))

    async def delete(self, name: str) -> None:
        await self._repeat(f"deleting {name}", lambda: self._store.delete(name))

    async def _repeat(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        patience = self._patience
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(patience.timeout_ms / 1000):
                    return await call()
            except TimeoutError:
                error = self._silent(what)
            except StoreUnavailableError as unavailable:
                error = unavailable
            attempt += 1
            if attempt >= patience.attempts:
                raise error
            await asyncio.sleep(patience.backoff.delay_ms(attempt - 1, self._rng) / 1000)

    def _silent(self, what: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"The object store did not respond to {what} for {self._patience.timeout_ms} ms.")
