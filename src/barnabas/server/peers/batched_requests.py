"""Shell: collects small requests to another broker and sends them in batches.

    ask ──► queue of (broker, API) ──► batch ──► send_batch ──► one result for each item
                                          one batch in flight at a time; items that arrive meanwhile form the next one

If a batch fails, every item in the batch fails with the same error. Batches are not retried; the caller of `ask`
decides whether to retry.
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
"""The limit for the items in one queue; `ask` rejects more."""

_Entry = tuple[T, "asyncio.Future[R]"]


class BatchedRequests(Generic[K, T, R]):
    """One queue for each key. `run` must be running during calls of `ask`.

    `choose` gets the queued items, oldest first, and returns the indices of those that go into the next batch;
    `choose` is never called without items. `send_batch` sends a batch and returns one result for each item, in order. A
    result that is a `KafkaError` is raised by the `ask` call of the item.
    """

    def __init__(
        self,
        choose: Callable[[Sequence[T]], Sequence[int]],
        send_batch: Callable[[K, list[T]], Awaitable[Sequence[R | KafkaError]]],
    ) -> None:
        self._choose = choose
        self._send_batch = send_batch
        self._queues: dict[K, list[_Entry[T, R]]] = {}
        """A queue exists as long as a task sends its items."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run the sending tasks until cancelled. Cancellation fails all queued items with BROKER_NOT_AVAILABLE."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            for queue in self._queues.values():
                _fail(queue, KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is shutting down."))
            self._queues.clear()

    async def ask(self, key: K, item: T) -> R:
        """Return the result of `item`. Raises KafkaError: the error of the batch, or of the item."""
        if self._tasks is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is starting or shutting down.")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = [(item, future)]
            self._tasks.create_task(self._serve(key), name=f"requests to {key}")
        elif len(queue) >= WAITING_MAX:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"{WAITING_MAX} requests for {key} are queued already. Try again later."
            )
        else:
            queue.append((item, future))
        return await future

    async def _serve(self, key: K) -> None:
        queue = self._queues[key]
        while queue:
            queue[:] = [entry for entry in queue if not entry[1].done()]  # drop the items whose callers were cancelled
            chosen = self._choose([item for item, _ in queue]) if queue else ()
            batch = [queue[place] for place in chosen]
            for place in sorted(chosen, reverse=True):
                del queue[place]
            if batch:
                await self._send(key, batch)
        self._queues.pop(key, None)

    async def _send(self, key: K, batch: list[_Entry[T, R]]) -> None:
        try:
            answers = await self._send_batch(key, [item for item, _ in batch])
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
            future.exception()  # marks the exception as retrieved, in case the caller was cancelled
