"""Shell: small requests to other brokers, many of them in one message.

    ask ──► line of (broker, kind) ──► batch ──► carried ──► one answer each
                    ▲                     one at a time: what comes meanwhile goes out together in the next one

A batch that fails fails everyone in it; nothing is sent twice here. Whoever asks knows whether to ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from barnabas.core.errors import ErrorCode, KafkaError

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)

WAITING_MAX: Final = 10_000
"""Questions that wait for one broker; more are refused."""

_Entry = tuple[T, "asyncio.Future[R]"]


class BatchedRequests(Generic[K, T, R]):
    """`run` owns the lines, one a key. `together` chooses from those that wait, in order and never empty, who goes in
    the next message; `carry` sends it, and gives an answer to each (a `KafkaError` is raised to who asked)."""

    def __init__(
        self,
        together: Callable[[Sequence[T]], Sequence[int]],
        carry: Callable[[K, list[T]], Awaitable[Sequence[R | KafkaError]]],
    ) -> None:
        self._together = together
        self._carry = carry
        self._lines: dict[K, list[_Entry[T, R]]] = {}
        """A line is here as long as a task serves it."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the tasks until cancelled; then everyone who waits is told."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            for line in self._lines.values():
                _fail(line, KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is shutting down."))
            self._lines.clear()

    async def ask(self, key: K, item: T) -> R:
        """Raises KafkaError: what the message failed with, or what was answered."""
        if self._tasks is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is starting or shutting down.")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = [(item, future)]
            self._tasks.create_task(self._serve(key), name=f"requests to {key}")
        elif len(line) >= WAITING_MAX:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{WAITING_MAX} requests wait for {key} already.")
        else:
            line.append((item, future))
        return await future

    async def _serve(self, key: K) -> None:
        line = self._lines[key]
        while line:
            line[:] = [entry for entry in line if not entry[1].done()]  # those who were cancelled have gone
            chosen = self._together([item for item, _ in line]) if line else ()
            batch = [line[place] for place in chosen]
            for place in sorted(chosen, reverse=True):
                del line[place]
            if batch:
                await self._send(key, batch)
        self._lines.pop(key, None)

    async def _send(self, key: K, batch: list[_Entry[T, R]]) -> None:
        try:
            answers = await self._carry(key, [item for item, _ in batch])
        except KafkaError as error:
            _fail(batch, error)
            return
        except asyncio.CancelledError:
            _fail(batch, KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is shutting down."))
            raise
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, KafkaError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _fail(entries: Sequence[_Entry[T, R]], error: KafkaError) -> None:
    for _, future in entries:
        if not future.done():
            future.set_exception(KafkaError(error.code, error.detail))
            future.exception()  # seen, even if whoever asked was cancelled
