"""Shell: the producer for code without an event loop: records are handed over to the loop's thread.

That is the one place where the blocking layer does more than wait: `send` must cost little, so it neither waits for the
loop nor wakes it for every record.
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
from barnabas.client.interceptors import DeliveryCallback, tell
from barnabas.client.producer.delivery import RecordPlace, unplaced
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import Headers, PreparedTransaction, RecordMetadata
from barnabas.core.errors import BarnabasError, KafkaError

HANDED_OVER_MAX: Final = 2_000
"""Records on their way from the callers' threads to the loop; beyond that `send` waits. With more of them the garbage
collector would look at each several times, which is half of what handing over costs.
"""
DRAINED_AT_ONCE_MAX: Final = 500
"""So many of them are passed on before the loop may do something else: send what has become a batch, for one."""

_ON_ITS_WAY: Final = unplaced()


class SentRecord(RecordPlace):
    """What becomes of a record that was handed over to the loop: `result()` waits for it."""

    __slots__ = ("_producer",)

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.batch = _ON_ITS_WAY
        self.index = 0

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises what went wrong, and TimeoutError when `timeout_s` is not enough."""
        return self._producer.wait_for(self, timeout_s)


_HandedOver = tuple[SentRecord, str, Any, Any, int | None, int | None, Headers, DeliveryCallback | None]
"""What `send` was given, in the order that `try_place` takes it."""


class Producer(Blocking[AsyncProducer]):
    """`AsyncProducer`, blocking. `send` hands the record over to the loop's thread and returns at once."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Any) -> None:
        self._handed_over: deque[_HandedOver] = deque()
        self._arrivals: dict[SentRecord, asyncio.Future[None]] = {}
        """For those who wait for the result of a record that is still on its way to the loop."""
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
        """Flush; then the transaction survives this producer, and can only be committed or aborted (KIP-939)."""
        self._run(self._until_drained())
        return self._run(self._client.prepare_transaction())

    complete_transaction = wait(AsyncProducer.complete_transaction)

    @property
    def can_go_on(self) -> bool:
        """False once nothing helps but a new producer: fenced by a newer one, or not authorized."""
        return self._client.can_go_on

    @property
    def prepared_transaction(self) -> PreparedTransaction | None:
        """The transaction that waits to be committed or aborted."""
        return self._client.prepared_transaction

    def commit_transaction(self) -> None:
        """Flush, and commit. Raises TransactionAbortedError when a part failed; then abort."""
        self._run(self._until_drained())
        self._run(self._client.commit_transaction())

    def abort_transaction(self) -> None:
        """Drop what is queued, and abort; read_committed consumers will see none of it."""
        self._run(self._until_drained())
        self._run(self._client.abort_transaction())

    @property
    def in_transaction(self) -> bool:
        """Between its beginning and its end."""
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
        """Queue a record. Whatever goes wrong, serializing included, is in the result and given to `on_delivery`."""
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
        """On the loop: may this drain end? From here on who hands a record over starts a new one.

        `send` appends and then looks at the flag, this clears the flag and then looks at the records: without a lock,
        one of the two sees what the other has done.
        """
        self._draining = False
        if not self._handed_over:
            self._drained.set()
            return True
        with self._lock:
            taken_over, self._draining = self._draining, True
        return taken_over

    async def _drain(self) -> None:
        """On the loop: pass the records on, in the order in which they were handed over."""
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
    """The record never comes into a batch."""
    sent, *_, on_delivery = record
    if not isinstance(error, BarnabasError):
        sent.batch = unplaced(KafkaError(-1, f"The record could not be sent: {error!r}"))
        return
    sent.batch = unplaced(error)
    if on_delivery is not None:
        tell(on_delivery, None, error)
