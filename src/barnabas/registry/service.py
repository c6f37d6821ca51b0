"""Shell: the registry: its state, the log behind it, and the one way in which it changes.

A change is decided from the state, appended to the log, and answered when it has been read back from there, so whoever
is told of it finds it. Several registries may work on one log. Whoever writes holds the pen: taking it fences all
others (a transactional id), and then everything is read before anything is decided. Who has lost the pen notices at
the next write, takes it back and decides anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from barnabas.core.decision import Decision
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.library import Library
from barnabas.registry.records import Record
from barnabas.registry.state import RegistryState

R = TypeVar("R")
ATTEMPTS_MAX: Final = 5


class PenLostError(Exception):
    """Another registry has taken the pen; nothing was written."""


class SchemaLog(Protocol):
    """Where the state is kept."""

    async def catch_up(self, apply: Callable[[Record], None]) -> None:
        """Apply what was committed since the last time."""

    async def take_pen(self) -> bool:
        """Make this the only writer. False when it was already."""

    async def append(self, records: Sequence[Record], apply: Callable[[Record], None]) -> None:
        """Write all or none, and return when they have been applied. Raises PenLostError, RegistryError."""


class Registry:
    """What the HTTP API and tests talk to."""

    def __init__(self, log: SchemaLog) -> None:
        self.state = RegistryState()
        self.library = Library(self.state)
        self._log = log
        self._writing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._begun = self._seen = 0

    async def refresh(self) -> None:
        """See what was written until now, by whichever registry. Calls at the same time share the work."""
        asked = self._begun
        async with self._reading:
            if self._seen > asked:
                return  # a refresh that began after this call has done it
            self._begun += 1
            begun = self._begun
            await self._log.catch_up(self.state.apply)
            self._seen = begun

    async def change(self, decide: Callable[[RegistryState, Library], Decision[Record, R]]) -> R:
        """Decide and write. `decide` may be called several times, and raises RegistryError to refuse."""
        async with self._writing:
            for _ in range(ATTEMPTS_MAX):
                if fresh := await self._log.take_pen():
                    await self.refresh()
                try:
                    decision = decide(self.state, self.library)
                except RegistryError:
                    if fresh:
                        raise
                    await self.refresh()  # perhaps another registry has changed what stands in the way
                    decision = decide(self.state, self.library)
                if not decision.records:
                    return decision.response
                try:
                    async with self._reading:
                        await self._log.append(decision.records, self.state.apply)
                except PenLostError:
                    continue
                return decision.response
        raise RegistryError(
            Code.STORE_ERROR, "Other registries are writing at the same time, again and again. Try again."
        )
