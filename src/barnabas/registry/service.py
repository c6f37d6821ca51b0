"""Shell: the registry: its state, the topic that stores the state, and the only method that changes it.

A change is decided from the state, appended to the topic, and acknowledged after it has been read back from the topic,
so that a client that has the response will find the change. Several registries may share one topic. One of them is the
writer: becoming the writer fences all others (they share a transactional id), and then the topic is read to its end
before a change is decided. A registry that was fenced notices this at its next write, becomes the writer again, and
decides anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from barnabas.core.decision import Decision
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.records import Record
from barnabas.registry.schema_cache import SchemaCache
from barnabas.registry.state import RegistryState

R = TypeVar("R")
ATTEMPTS_MAX: Final = 5


class WriterFencedError(Exception):
    """Another registry has become the writer; nothing was written."""


class SchemaLog(Protocol):
    """Port: the storage of the state."""

    async def catch_up(self, apply: Callable[[Record], None]) -> None:
        """Apply the records that were committed since the last call."""

    async def become_writer(self) -> bool:
        """Fence all other writers. Returns False if this registry was the writer already."""

    async def append(self, records: Sequence[Record], apply: Callable[[Record], None]) -> None:
        """Append all records or none, and return after they have been applied. Raises WriterFencedError and
        RegistryError.
        """


class Registry:
    """The registry that the HTTP API serves."""

    def __init__(self, log: SchemaLog) -> None:
        self.state = RegistryState()
        self.schema_cache = SchemaCache(self.state)
        self._log = log
        self._writing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._reads_begun = self._reads_finished = 0

    async def refresh(self) -> None:
        """Apply all records that any registry has committed before this call. Concurrent calls share one read."""
        begun_before = self._reads_begun
        async with self._reading:
            if self._reads_finished > begun_before:
                return  # another call began its read after this call began
            self._reads_begun += 1
            begun = self._reads_begun
            await self._log.catch_up(self.state.apply)
            self._reads_finished = begun

    async def change(self, decide: Callable[[RegistryState, SchemaCache], Decision[Record, R]]) -> R:
        """Decide a change and write it. `decide` may be called several times; it raises RegistryError to reject the
        request.
        """
        async with self._writing:
            for _ in range(ATTEMPTS_MAX):
                if fresh := await self._log.become_writer():
                    await self.refresh()
                try:
                    decision = decide(self.state, self.schema_cache)
                except RegistryError:
                    if fresh:
                        raise
                    await self.refresh()  # the state may be outdated: another registry may have changed it
                    decision = decide(self.state, self.schema_cache)
                if not decision.records:
                    return decision.response
                try:
                    async with self._reading:
                        await self._log.append(decision.records, self.state.apply)
                except WriterFencedError:
                    continue
                return decision.response
        raise RegistryError(Code.STORE_ERROR, "Other registries keep writing at the same time. Retry the request.")
