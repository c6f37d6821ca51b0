"""Shell: the blocking producer, which passes records to the thread of its event loop.

`send` must be fast. Unlike the other blocking methods, `send` does not wake the event loop for every record, and waits
for the loop only when more than `HANDED_OVER_MAX` records have not reached the loop yet.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

from barnabas.client.blocking import Blocking, call, wait
from barnabas.client.errors import ClientClosedError
from barnabas.client.interceptors import DeliveryCallback, notify
from barnabas.client.producer.delivery import RecordPlace, unplaced
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import Headers, PreparedTransaction, RecordMetadata
from barnabas.core.errors import BarnabasError, KafkaError

HANDED_OVER_MAX: Final = 2_000
"""The largest number of records between the callers' threads and the loop; beyond it `send` waits. With more
waiting records, the garbage collector would visit each of them several times, and these visits would be half of the
cost of `send`.
"""
DRAINED_AT_ONCE_MAX: Final = 500
"""The number of records that are passed on at once, before the loop may run other tasks such as the sender."""

_ON_ITS_WAY: Final = unplaced()


class SentRecord(RecordPlace):
    """The result of a record that was sent: `result()` waits until the record is acknowledged or has failed."""

    __slots__ = ("_producer",)

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.batch = _ON_ITS_WAY
        self.index = 0

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """The metadata of the acknowledged record. Raises the record's error, or TimeoutError after `timeout_s`."""
        return self._producer.wait_for(self, timeout_s)


_HandedOver = tuple[SentRecord, str, Any, Any, int | None, int | None, Headers, DeliveryCallback | None]
"""The arguments of `send`, in the order of the parameters of `try_place`."""


class Producer(Blocking[AsyncProducer]):
    """`AsyncProducer`, blocking. `send` leaves the record for the loop's thread and returns, without waiting for the
    loop unless more than `HANDED_OVER_MAX` records are waiting."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Any) -> None:
        self._handed_over: deque[_HandedOver] = deque()
        self._arrivals: dict[SentRecord, asyncio.Future[None]] = {}
        """Futures of callers that wait for the result of a record which has not reached the loop yet."""
        self._draining = False
        self._lock = threading.Lock()
        self._drained = asyncio.Event()
        super().__init__(lambda: AsyncProducer(config, **settings))

    send_and_wait = wait(AsyncProducer.send_and_wait)
    send_arrow = wait(AsyncProducer.send_arrow)
    partitions_for = wait(AsyncProducer.partitions_for)
    init_transactions = wait(AsyncProducer.init_transactions)
    begin_transaction = call(AsyncProducer.begin_transaction)
    send_offsets_to_transaction = wait(AsyncProducer.send_offsets_to_transaction)

    def prepare_transaction(self) -> PreparedTransaction:
        """Flush and prepare. A prepared transaction survives this producer and can only be committed or aborted
        (KIP-939)."""
        self._run(self._until_drained())
        return self._run(self._client.prepare_transaction())

    complete_transaction = wait(AsyncProducer.complete_transaction)

    @property
    def can_go_on(self) -> bool:
        """False after a fatal error (fenced, or not authorized): only a new producer can continue."""
        return self._client.can_go_on

    @property
    def prepared_transaction(self) -> PreparedTransaction | None:
        """The prepared transaction, which must be committed or aborted; None without one."""
        return self._client.prepared_transaction

    def commit_transaction(self) -> None:
        """Flush and commit. Raises TransactionAbortedError if a part of the transaction (a batch or an offset
        commit) has failed; call `abort_transaction` then."""
        self._run(self._until_drained())
        self._run(self._client.commit_transaction())

    def abort_transaction(self) -> None:
        """Drop the queued records and abort. No read_committed consumer will see a record of the transaction."""
        self._run(self._until_drained())
        self._run(self._client.abort_transaction())

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or has failed and must be aborted. (A prepared one must be completed
        instead.)"""
        return self._client.in_transaction

    @contextmanager
    def transaction(self) -> Generator[Self, None, None]:
        """`with producer.transaction(): ...` commits at the end, and aborts when the block raises."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._client.in_transaction:
                self.abort_transaction()
            raise

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> SentRecord:
        """Queue a record. Errors, also of a serializer, are raised by `result()` of the returned object.

        `on_delivery` gets the errors that are BarnabasErrors.
        """
        if self._closed:
            raise ClientClosedError("This producer")
        sent = SentRecord(self)
        handed_over = self._handed_over
        handed_over.append((sent, topic, value, key, partition, timestamp, headers, on_delivery))
        if not self._draining:
            self._start_draining()
        if len(handed_over) > HANDED_OVER_MAX:
            self._run(self._until_drained())
        return sent

    def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed."""
        self._run(self._flush(timeout_ms))

    def close(self) -> None:
        """Flush, then close."""
        if not self._closed:
            self._run(self._until_drained())
        super().close()

    def wait_for(self, sent: SentRecord, timeout_s: float | None) -> RecordMetadata:
        return self._run(self._result(sent, timeout_s))

    async def _result(self, sent: SentRecord, timeout_s: float | None) -> RecordMetadata:
        async with asyncio.timeout(timeout_s):
            if sent.batch is _ON_ITS_WAY:
                arrival = self._arrivals.get(sent)
                if arrival is None:
                    arrival = self._arrivals[sent] = self._thread.loop.create_future()
                await asyncio.shield(arrival)
            return await sent

    async def _flush(self, timeout_ms: float | None) -> None:
        await self._until_drained()
        await self._client.flush(timeout_ms)

    async def _until_drained(self) -> None:
        if self._handed_over or self._draining:
            await self._drained.wait()

    def _start_draining(self) -> None:
        with self._lock:
            if self._draining:
                return
            self._draining = True
        asyncio.run_coroutine_threadsafe(self._drain(), self._thread.loop)

    def _is_drained(self) -> bool:
        """Whether this drain can end: no record is left, or `send` has started a new drain. Called on the loop.

        `send` appends a record and then reads `_draining`. This method clears `_draining` and then looks for records.
        So `send` sees that it must start a new drain, or this method sees the record, without a lock.
        """
        self._draining = False
        if not self._handed_over:
            self._drained.set()
            return True
        with self._lock:
            taken_over, self._draining = self._draining, True
        return taken_over

    async def _drain(self) -> None:
        """Pass the records to the asyncio producer, in the order of the calls of `send`; runs on the loop."""
        handed_over, arrivals = self._handed_over, self._arrivals
        try_place = self._client.try_place
        self._drained.clear()
        while handed_over or not self._is_drained():
            for _ in range(min(len(handed_over), DRAINED_AT_ONCE_MAX)):
                sent, topic, value, key, partition, timestamp, headers, on_delivery = record = handed_over.popleft()
                try:
                    if not try_place(sent, topic, value, key, partition, timestamp, headers, on_delivery):
                        await self._client.place(*record)
                except Exception as error:  # noqa: BLE001 - the caller is in another thread and gets it as a result
                    _refuse(record, error)
                if arrivals and sent in arrivals:
                    arrivals.pop(sent).set_result(None)
            await asyncio.sleep(0)


def _refuse(record: _HandedOver, error: Exception) -> None:
    """Fail a record that was not added to a batch. Only a BarnabasError is passed to `on_delivery`."""
    sent, *_, on_delivery = record
    if not isinstance(error, BarnabasError):
        sent.batch = unplaced(KafkaError(-1, f"The record could not be sent: {error!r}"))
        return
    sent.batch = unplaced(error)
    if on_delivery is not None:
        notify(on_delivery, None, error)
