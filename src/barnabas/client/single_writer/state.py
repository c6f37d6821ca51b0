"""Shell: state that is built from the records of a topic, and the only method that changes it.

A change is decided from the state, appended to the topic, and acknowledged after it has been read back from the topic,
so that a client that has the response will find the change. Several processes may share one topic. One of them is the
writer: becoming the writer fences all others (they share a transactional id), and then the topic is read to its end
before a change is decided. A process that was fenced notices this at its next write, becomes the writer again, and
decides anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas.core.decision import Decision
from barnabas.core.errors import BarnabasError

RecordT = TypeVar("RecordT")
R = TypeVar("R")
ATTEMPTS_MAX: Final = 5


class WriterFencedError(Exception):
    """Another process has become the writer; nothing was written."""


class WritersCompeteError(BarnabasError):
    """Other processes became the writer before each attempt to write; nothing was written."""

    def __init__(self) -> None:
        super().__init__("Other processes keep writing at the same time. Retry the request.")


class SharedLog(Protocol[RecordT]):
    """Port: the storage of the state."""

    async def catch_up(self, apply: Callable[[RecordT], None]) -> None:
        """Apply the records that were committed since the last call."""

    async def become_writer(self) -> bool:
        """Fence all other writers. Returns False if this process was the writer already."""

    async def append(self, records: Sequence[RecordT], apply: Callable[[RecordT], None]) -> None:
        """Append all records or none, and return after they have been applied. Raises WriterFencedError, and an error
        of the log if it is not known whether they were written.
        """


class SharedState(Generic[RecordT]):
    """Keeps a state up to date with its log. `apply` changes the state by one record; a decision that raises
    `rejection` rejects the request.
    """

    def __init__(
        self, log: SharedLog[RecordT], apply: Callable[[RecordT], None], rejection: type[BarnabasError]
    ) -> None:
        self._log = log
        self._apply = apply
        self._rejection = rejection
        self._writing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._reads_begun = self._reads_finished = 0

    async def refresh(self) -> None:
        """Apply all records that any process has committed before this call. Concurrent calls share one read."""
        begun_before = self._reads_begun
        async with self._reading:
            if self._reads_finished > begun_before:
                return  # another call began its read after this call began
            self._reads_begun += 1
            begun = self._reads_begun
            await self._log.catch_up(self._apply)
            self._reads_finished = begun

    async def change(self, decide: Callable[[], Decision[Any, R]]) -> R:
        """Decide a change and write it. `decide` reads the state; it may be called several times. Raises what `decide`
        raises to reject the request, and WritersCompeteError.
        """
        async with self._writing:
            for _ in range(ATTEMPTS_MAX):
                if fresh := await self._log.become_writer():
                    await self.refresh()
                try:
                    decision = decide()
                except self._rejection:
                    if fresh:
                        raise
                    await self.refresh()  # the state may be outdated: another process may have changed it
                    decision = decide()
                if not decision.records:
                    return decision.response
                try:
                    async with self._reading:
                        await self._log.append(decision.records, self._apply)
                except WriterFencedError:
                    continue
                return decision.response
        raise WritersCompeteError
