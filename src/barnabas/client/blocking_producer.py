"""Shell: the blocking producer, which passes records to the thread of its event loop.

`send` must be fast. Unlike the other blocking methods, `send` does not wake the event loop for every record, and waits
for the loop only when the topic's metadata is not known yet, or when more than `HANDED_OVER_MAX` records have not
reached the loop. Interceptors, serializers and checks run in the caller's thread, so that `send` raises their errors.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from barnabas.client.arguments import checks_arguments
from barnabas.client.blocking import Blocking, wait
from barnabas.client.errors import RequestTimeoutError
from barnabas.client.interceptors import DeliveryCallback, ProducerInterceptor, notify
from barnabas.client.producer.delivery import RecordPlace, unplaced
from barnabas.client.producer.partitioner import Partitioner
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.serialization import AnySerializer, NotReadyError
from barnabas.client.typed_settings import ProducerSettings
from barnabas.client.values import Headers, PreparedTransaction, RecordMetadata
from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.protocol.records.build import RECORD_OVERHEAD_MAX

HANDED_OVER_MAX: Final = 2_000
"""The largest number of records between the callers' threads and the loop; beyond it `send` waits. With more
waiting records, the garbage collector would visit each of them several times, and these visits would be half of the
cost of `send`.
"""
DRAINED_AT_ONCE_MAX: Final = 500
"""The number of records that are passed on at once, before the loop may run other tasks such as the sender."""

P = ParamSpec("P")
R = TypeVar("R")
_ON_ITS_WAY: Final = unplaced()


class SentRecord(RecordPlace):
    """The result of a record that was sent: `result()` waits until the record is acknowledged or has failed."""

    __slots__ = ("_producer",)

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.batch = _ON_ITS_WAY
        self.index = 0

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """The metadata of the acknowledged record. Raises the record's error, or RequestTimeoutError (a TimeoutError)
        after `timeout_s`."""
        return self._producer.wait_for(self, timeout_s)

    def exception(self, timeout_s: float | None = None) -> BarnabasError | None:
        """The record's error; None if it was acknowledged. Raises RequestTimeoutError after `timeout_s`."""
        try:
            self.result(timeout_s)
        except BarnabasError as error:
            if not self.done():
                raise
            return error
        return None


_HandedOver = tuple[
    float, SentRecord, str, Buffer | None, Buffer | None, int | None, int | None, Headers, DeliveryCallback | None
]
"""The time until which the record may wait, and the parameters of `try_place` in their order."""


def once(
    method: Callable[Concatenate[AsyncProducer, P], Awaitable[R]],
) -> Callable[Concatenate[Producer, P], R]:
    """Wrap an async method that changes the state of the transaction. If the blocking method is interrupted when the
    async one has ended already, the repeated call returns the same result."""

    @functools.wraps(method)
    def blocking(self: Producer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result = self._run_once(method.__name__, lambda: method(self._client, *args, **kwargs))
        self._kept = None  # no signal handler can run between this and the return
        return result

    return blocking


@checks_arguments(without=("send",))
class Producer(Blocking[AsyncProducer]):
    """`AsyncProducer`, blocking. `send` leaves the record for the loop's thread and returns, without waiting for the
    loop unless more than `HANDED_OVER_MAX` records are waiting."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self._handed_over: deque[_HandedOver | asyncio.Future[None]] = deque()
        """Records, and futures that are set when all records before them have left the queue."""
        self._arrivals: dict[SentRecord, asyncio.Future[None]] = {}
        """Futures of callers that wait for the result of a record which has not reached the loop yet."""
        self._draining = False
        self._drainer: asyncio.Task[None] | None = None
        """The task that passes the records on; only the loop sets it."""
        self._kept: tuple[str, object] | None = None
        """The name and the result of a transactional call that has ended, until the program has the result."""
        super().__init__(
            lambda: AsyncProducer(
                config,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner,
                interceptors=interceptors,
                **settings,
            )
        )
        self._plain = key_serializer is None and value_serializer is None
        self._intercepts = self._client.intake.intercepts
        self._metadata = self._client.cluster.metadata
        self._small = self._client.intake.record_bytes_max - RECORD_OVERHEAD_MAX
        self._max_block_s = self._client.intake.max_block_ms / 1000.0

    send_and_wait = wait(AsyncProducer.send_and_wait)
    send_arrow = wait(AsyncProducer.send_arrow)
    send_batches = wait(AsyncProducer.send_batches)
    partitions_for = wait(AsyncProducer.partitions_for)
    send_offsets_to_transaction = wait(AsyncProducer.send_offsets_to_transaction)
    init_transactions = once(AsyncProducer.init_transactions)
    prepare_transaction = once(AsyncProducer.prepare_transaction)
    complete_transaction = once(AsyncProducer.complete_transaction)
    hand_over_transaction = once(AsyncProducer.hand_over_transaction)
    commit_transaction = once(AsyncProducer.commit_transaction)
    abort_transaction = once(AsyncProducer.abort_transaction)

    def _run_once(self, name: str, work: Callable[[], Awaitable[R]]) -> R:
        """Run a call that changes the state of the transaction, when all records have left the queue. Its result is
        kept until the caller sets `_kept` to None."""

        async def once() -> R:
            if self._kept is not None and self._kept[0] == name:
                return self._kept[1]  # type: ignore[return-value]  # the result of `once` with the same name
            await self._until_drained()
            result = await work()
            self._kept = name, result
            return result

        return self._run(once)

    def begin_transaction(self) -> None:
        """Begin a transaction. Its records become visible together, or not at all."""
        begun = False

        async def begin() -> None:
            nonlocal begun
            self._kept = None
            self._client.begin_transaction()
            begun = True

        async def undo() -> None:
            if begun:
                await self._client.leave_transaction()

        try:
            self._run(begin)
        except BaseException:  # KeyboardInterrupt, too: a call that was interrupted has no effect
            if not self._closed:
                self._run(undo)
            raise

    @property
    def can_go_on(self) -> bool:
        """False after a fatal error (fenced, or not authorized): only a new producer can continue."""
        return self._client.can_go_on

    @property
    def prepared_transaction(self) -> PreparedTransaction | None:
        """The prepared transaction, which must be committed or aborted; None without one."""
        return self._client.prepared_transaction

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
        except BaseException:  # KeyboardInterrupt, too: no transaction may stay open
            if not self._closed:
                try:
                    self._leave_transaction()
                except BaseException:  # another interrupt
                    self._leave_transaction()
                    raise
            raise

    def _leave_transaction(self) -> None:
        self._run(lambda: self._after_draining(self._client.leave_transaction))

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
        """Queue a record. `timestamp` is ms since the epoch, now by default; `headers` are (name, bytes) pairs.

        Raises at once what is known at once: SerializationError, MESSAGE_TOO_LARGE, a partition that does not exist,
        the error of a closed, fenced or failed producer, and KafkaError when the topic's metadata cannot be fetched
        within `max.block.ms`. Every other error is in the result, is passed to `on_delivery`, and is raised by `flush`
        and `close` unless it was retrieved before.
        """
        if self._closed:
            self._check_open()
        client = self._client
        intake = client.intake
        if client.needs_check:
            client.check_usable()
        if self._intercepts:
            topic, value, key, partition, timestamp, headers = intake.intercept(
                topic, value, key, partition, timestamp, headers
            )
        try:
            if not (self._plain and type(value) is bytes and (key is None or type(key) is bytes)):
                key, value = self._encode(topic, headers, key, value)
            view = self._metadata.topics.get(topic)
            if view is None or not view.partitions:
                self._run(lambda: client.learn(topic))
            if (
                headers
                or value is None
                or partition is not None
                or timestamp is not None
                or len(value) + (0 if key is None else len(key)) > self._small
            ):
                headers = tuple(headers)
                intake.check_record(topic, key, value, partition, timestamp, headers)
        except KafkaError as error:
            intake.note_refused(error)
            raise
        sent = SentRecord(self)
        handed_over = self._handed_over
        until = time.monotonic() + self._max_block_s
        handed_over.append((until, sent, topic, value, key, partition, timestamp, headers, on_delivery))
        if not self._draining:
            self._start_draining()
        if len(handed_over) > HANDED_OVER_MAX:
            self._run(self._until_drained)
        return sent

    def _encode(self, topic: str, headers: Headers, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """Serialize in the caller's thread; only a serializer that lacks data waits for the loop. The record may be
        placed after this call, so that a buffer that the caller can change is copied."""
        intake = self._client.intake
        try:
            key_data, value_data = intake.encode_now(topic, headers, key, value)
        except NotReadyError:
            key_data, value_data = self._run(lambda: intake.encode(topic, headers, key, value))
        return None if key_data is None else bytes(key_data), None if value_data is None else bytes(value_data)

    def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed.

        Raises DeliveryFailedError if records have failed since the last flush and the program has not retrieved their
        errors (by `result()` or callbacks), and RequestTimeoutError, which is a TimeoutError, after `timeout_ms`. A
        transactional producer raises the errors of its records in `commit_transaction` instead.
        """
        self._run(lambda: self._flush(timeout_ms))

    def close(self, timeout_ms: float | None = None) -> None:
        """Flush, then close. Records that are not acknowledged within `timeout_ms` fail. An open transaction is
        aborted.

        Raises DeliveryFailedError, after everything is closed, if records have failed and the program has not
        retrieved their errors. May be called twice, by any thread, and by a signal handler.
        """
        self._close(lambda: self._wind_down(timeout_ms))

    async def _wind_down(self, timeout_ms: float | None) -> None:
        """Close the asyncio producer: records that are still on their way to it afterwards fail."""
        loop = asyncio.get_running_loop()
        until = None if timeout_ms is None else loop.time() + timeout_ms / 1000.0
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._until_drained()
        await self._client.shut(None if until is None else max(until - loop.time(), 0.0) * 1000.0)
        await self._until_drained()
        self._client.raise_failures()

    def _left_behind(self) -> str:
        count = len(self._handed_over) + self._client.unacknowledged
        return f" {count} records were not acknowledged." if count else ""

    def wait_for(self, sent: SentRecord, timeout_s: float | None) -> RecordMetadata:
        return self._run(lambda: self._result(sent, timeout_s))

    async def _result(self, sent: SentRecord, timeout_s: float | None) -> RecordMetadata:
        try:
            async with asyncio.timeout(timeout_s):
                if sent.batch is _ON_ITS_WAY:
                    arrival = self._arrivals.get(sent)
                    if arrival is None:
                        arrival = self._arrivals[sent] = self._thread.loop.create_future()
                    await asyncio.shield(arrival)
                return await sent
        except TimeoutError as error:
            if isinstance(error, BarnabasError):
                raise
            where = f" for {sent.batch.partition}" if sent.batch is not _ON_ITS_WAY else ""
            raise RequestTimeoutError(
                f"A record{where} was not acknowledged within {timeout_s:g} s. The producer goes on sending it until"
                f" delivery.timeout.ms; call result() again.{self._client.cluster.problems.hint()}"
            ) from None

    async def _flush(self, timeout_ms: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = None if timeout_ms is None else loop.time() + timeout_ms / 1000.0
        try:
            async with asyncio.timeout_at(until):
                await self._until_drained()
        except TimeoutError:
            raise RequestTimeoutError(
                f"Flushing did not finish within {timeout_ms:.0f} ms: {len(self._handed_over)} records wait for"
                f" metadata or for buffer.memory. Flush again, or close.{self._client.cluster.problems.hint()}"
            ) from None
        await self._client.flush(None if until is None else max(until - loop.time(), 0.0) * 1000.0)

    async def _after_draining(self, work: Callable[[], Awaitable[R]]) -> R:
        await self._until_drained()
        return await work()

    async def _until_drained(self) -> None:
        """Wait until the records that were handed over before this call are placed or refused."""
        if self._handed_over or self._draining:
            mark: asyncio.Future[None] = self._thread.loop.create_future()
            self._handed_over.append(mark)
            if not self._draining:
                self._start_draining()
            await mark

    def _start_draining(self) -> None:
        """Let the loop pass the records on. A call that is interrupted here leaves it to the next call."""
        self._draining = True
        try:
            self._thread.loop.call_soon_threadsafe(self._begin_draining)
        except BaseException:  # KeyboardInterrupt, or the loop is closed
            self._draining = False
            raise

    def _begin_draining(self) -> None:
        if self._drainer is None:
            self._drainer = self._thread.loop.create_task(self._drain())

    def _is_drained(self) -> bool:
        """Whether this drain can end, because no record is left. Called on the loop.

        `send` appends a record and then reads `_draining`. This method clears `_draining` and then looks for records.
        So `send` sees that it must start a new drain, or this method sees the record, without a lock.
        """
        self._draining = False
        if self._handed_over:
            self._draining = True
            return False
        self._drainer = None
        return True

    async def _drain(self) -> None:
        """Pass the records to the asyncio producer, in the order of the calls of `send`; runs on the loop."""
        handed_over, arrivals = self._handed_over, self._arrivals
        client = self._client
        try_place = client.try_place
        while handed_over or not self._is_drained():
            for _ in range(min(len(handed_over), DRAINED_AT_ONCE_MAX)):
                record = handed_over.popleft()
                if record.__class__ is not tuple:
                    if not record.done():  # type: ignore[union-attr]  # a future of `_until_drained`
                        record.set_result(None)  # type: ignore[union-attr]  # a future, as above
                    continue
                until, sent, topic, value, key, partition, timestamp, headers, on_delivery = record
                try:
                    if not try_place(sent, topic, value, key, partition, timestamp, headers, on_delivery):
                        await client.place(
                            sent, topic, value, key, partition, timestamp, headers, on_delivery, deadline=until
                        )
                except Exception as error:  # noqa: BLE001 - the caller, in another thread, gets the error as a result
                    self._refuse(sent, topic, partition, on_delivery, error)
                if arrivals and sent in arrivals:
                    arrivals.pop(sent).set_result(None)
            await asyncio.sleep(0)

    def _refuse(
        self,
        sent: SentRecord,
        topic: str,
        partition: int | None,
        on_delivery: DeliveryCallback | None,
        error: Exception,
    ) -> None:
        """Fail a record that was not added to a batch: the result, `on_delivery` and the next flush get the error."""
        if not isinstance(error, BarnabasError):
            cause = error
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The record could not be sent: {cause!r}")
            error.__cause__ = cause
        intake = self._client.intake
        intake.refuse(sent, topic, partition, error)
        if on_delivery is not None:
            sent.error()
            notify(on_delivery, None, error)
        if sent in self._arrivals:
            sent.error()  # a thread waits for the result
        intake.keep_failure(sent)
