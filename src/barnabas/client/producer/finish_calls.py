"""Shell: the producer's calls that wait for records: `flush` and `close`."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod

from barnabas.client.arguments import checks_arguments
from barnabas.client.errors import ClientClosedError, RequestTimeoutError
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.topics import ProducerTopics
from barnabas.client.producer.transaction_calls import TransactionCalls
from barnabas.client.resumed import Closing
from barnabas.core.errors import KafkaError

log = logging.getLogger("barnabas.client")


@checks_arguments()
class FinishCalls(TransactionCalls):
    """`flush` and `close` of `AsyncProducer`."""

    needs_check: bool
    _accumulator: Accumulator
    _closed: bool
    _closing: Closing
    _owns_cluster: bool
    _runner: asyncio.Task[None] | None
    _topics: ProducerTopics

    @property
    def unacknowledged(self) -> int:
        """The number of records that are queued or in flight."""
        return self._accumulator.count_records()

    @abstractmethod
    def _on_progress(self) -> None: ...

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send all queued records without lingering, and wait until all are acknowledged or have failed.

        Raises DeliveryFailedError if records have failed since the last flush and the program has not retrieved their
        errors (by futures or callbacks), and RequestTimeoutError, which is a TimeoutError, after `timeout_ms`. A
        transactional producer raises the errors of its records in `commit_transaction` instead.
        """
        self._check_open()
        await self._flush(timeout_ms)
        self.raise_failures()

    def raise_failures(self) -> None:
        """Raise DeliveryFailedError if records have failed and the program has not retrieved their errors."""
        failures = self._accumulator.failures
        lost = failures.take() if failures is not None else None
        if lost is not None:
            raise lost

    async def _flush(self, timeout_ms: float | None) -> None:
        self._ensure_running()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000.0):
                for state in list(self._topics.states.values()):
                    if state.columns_turn.locked():
                        async with state.columns_turn:  # wait until the whole table is queued
                            pass
                await self._flush_queued()
        except TimeoutError:
            raise RequestTimeoutError(self._unflushed(timeout_ms)) from None

    def _unflushed(self, timeout_ms: float | None) -> str:
        """The text of the error of a flush that has not finished within `timeout_ms`."""
        batch = next((b for q in self._accumulator.queues.values() for b in (*q.in_flight, *q.queue)), None)
        where = f", the first for {batch.partition}" if batch is not None else ""
        return (
            f"Flushing did not finish within {timeout_ms:.0f} ms: {self.unacknowledged} records are not acknowledged"
            f" yet{where}. The producer goes on sending them until delivery.timeout.ms; flush again, or close."
            f"{self.cluster.problems.hint()}"
        )

    async def _flush_queued(self) -> None:
        open_batches = [b for q in self._accumulator.queues.values() for b in (*q.in_flight, *q.queue)]
        if not open_batches:
            return
        left = len(open_batches)
        done = asyncio.get_running_loop().create_future()

        def count_down() -> None:
            nonlocal left
            left -= 1
            if not left and not done.done():
                done.set_result(None)

        self._sender.flushing += 1
        self._sender.wake()
        try:
            for batch in open_batches:
                batch.watch(count_down)
            await done
        finally:
            self._sender.flushing -= 1

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush, then close. Records that are not acknowledged within `timeout_ms` fail. An open transaction is
        aborted. A call that is cancelled goes on in the background; another call waits for it, or shortens its time.

        Raises DeliveryFailedError, after everything is closed, if records have failed and the program has not
        retrieved their errors.
        """
        await self.shut(timeout_ms)
        self.raise_failures()

    async def shut(self, timeout_ms: float | None = None) -> None:
        """Close without raising the errors of records. A second call waits for the first."""
        self._closed = self.needs_check = True

        async def stop(_: bool) -> None:
            waited = "" if timeout_ms is None else f", for which close waited {timeout_ms:.0f} ms"
            self._accumulator.abandon(
                ClientClosedError(
                    "This producer", f"The producer was closed before the record was acknowledged{waited}."
                )
            )
            self._on_progress()
            await self._stop()

        await self._closing.run(
            None if timeout_ms is None else timeout_ms / 1000.0, lambda: self._wind_down(timeout_ms), stop
        )

    async def _stop(self) -> None:
        """End the tasks and the connections."""
        try:
            if self._transactions is not None:
                await self._transactions.stop()
            if self._runner is not None:
                self._sender.stop()
                await asyncio.wait((self._runner,))
        finally:
            if self._owns_cluster:
                await self.cluster.close()

    async def _wind_down(self, timeout_ms: float | None) -> None:
        """Finish what can be finished. Errors are not raised: records that are open afterwards fail."""
        self._on_progress()  # callers that wait for memory learn that the producer is closed
        if self._runner is None or self._runner.done():
            return
        if timeout_ms != 0 and self._transactions is not None:
            await self._transactions.settle()
            if self.in_transaction and self.can_go_on:
                log.warning("a producer is closed with an open transaction, which is aborted: %r", self)
                await self._abort_quietly()
        await self._flush(None)

    async def _abort_quietly(self) -> None:
        try:
            await self._abort()
        except KafkaError as error:
            log.warning("the open transaction was not aborted (its transaction.timeout.ms will end it): %s", error)
