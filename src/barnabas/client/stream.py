"""Shell: a loop that consumes, transforms and produces, in milliseconds and exactly once.

    @exactly_once("orders", group_id="shouting", bootstrap_servers="localhost:9092")
    def shout(order: ConsumerRecord[bytes, bytes]) -> ProducerRecord:
        return ProducerRecord("shouted", order.value.upper(), order.key)

    asyncio.run(shout.run())

The records of each poll are one transaction, with the outputs and the consumer's offsets in it (KIP-98, KIP-447).
Partitions move to other members only between two transactions. A transaction that fails is aborted, and its records are
read again from the committed offsets. The function must have no other effects, because it may see a record again.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import traceback
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, Final

from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import TransactionAbortedError
from barnabas.client.interceptors import ProducerRecord
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import ConsumerRecord, OffsetAndMetadata
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import random_uuid, system_rng

log = logging.getLogger("barnabas.client")

Record = ConsumerRecord[Any, Any]
Outputs = ProducerRecord | Iterable[ProducerRecord] | None
Transform = Callable[[Record], Outputs | Awaitable[Outputs] | AsyncIterable[ProducerRecord]]

DEFAULTS: Final = {"auto.offset.reset": "earliest", "linger.ms": 0, "transaction.timeout.ms": 10_000}
"""Kafka Streams has the same defaults, except for the linger of 100 ms."""
OURS: Final = {"enable.auto.commit": False, "isolation.level": "read_committed"}
POLL_MS: Final = 250
"""How long `stop` may go unnoticed while there are no records."""
_SOLVED_BY_ABORT: Final = frozenset(
    {
        *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS),
        *(ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH),
        *(ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        *(ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.TRANSACTION_ABORTABLE),
    }
)
"""The group has rebalanced without this member, or the coordinator has aborted a transaction that took too long."""


def exactly_once(*topics: str, group_id: str, **options: Any) -> Callable[[Transform], Stream]:
    """Make a function from a record to its output records a `Stream`. Takes the options of `Stream`."""
    return lambda transform: Stream(transform, topics, group_id=group_id, **options)


class Stream:
    """One member of a group that transforms topics. Start several, in any number of processes, to share the work.

    With `instance`, a name that stays the same across restarts and that no other member has, a process that is started
    again aborts its predecessor's transaction and gets its partitions at once. Without it, both wait for
    `transaction.timeout.ms` (10 s) and `session.timeout.ms`. A record for which the function raises goes to the topic
    `dead_letters`, with Kafka Connect's headers; without it, `run` raises the exception. `settings` are configs of
    consumer and producer.
    """

    def __init__(
        self,
        transform: Transform,
        topics: Iterable[str],
        *,
        group_id: str,
        instance: str | None = None,
        dead_letters: str | None = None,
        **settings: object,
    ) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        if refused := given.keys() & {*OURS, "group.instance.id", "transactional.id"}:
            raise ConfigError(f"A stream sets {', '.join(sorted(refused))} itself; name its members with `instance`.")
        self.processed = self.aborted = 0
        """The number of records whose transactions are committed, and of transactions that were aborted."""
        self._transform, self._topics, self._dead_letters = transform, list(topics), dead_letters
        self._settings: dict[str, object] = {**DEFAULTS, **given, **OURS, "group.id": group_id}
        self._member = {} if instance is None else {"group.instance.id": instance}
        self._transactional_id = None if instance is None else f"{group_id}-{instance}"
        self._stopping = False
        self._failures = 0

    def __call__(self, record: Record) -> Any:
        """Call the function itself, for tests that need no broker."""
        return self._transform(record)

    def stop(self) -> None:
        """Let `run` return after the current transaction. May be called from a signal handler of the event loop."""
        self._stopping = True

    async def run(self) -> None:
        """Transform records until `stop` is called. Raises what trying again cannot solve: the function's own
        exceptions, missing rights, FENCED_INSTANCE_ID when another process has the same `instance`."""
        self._stopping = False
        producer = await self._open_producer()
        try:
            async with AsyncConsumer({**self._settings, **self._member}) as consumer:
                consumer.subscribe(self._topics)
                while not self._stopping:
                    if records := await consumer.poll(POLL_MS):
                        await self._transact(consumer, producer, records)
                    if not producer.can_go_on:
                        await producer.shut(timeout_ms=0)
                        producer = await self._open_producer()
        finally:
            await producer.shut()

    async def _open_producer(self) -> AsyncProducer:
        name = self._transactional_id or f"{self._settings['group.id']}-{random_uuid(system_rng())}"
        producer = AsyncProducer({**self._settings, "transactional.id": name})
        try:
            await producer.init_transactions()
        except BaseException:  # cancellation, too: the producer must be closed
            await producer.shut(timeout_ms=0)
            raise
        return producer

    async def _transact(self, consumer: AsyncConsumer, producer: AsyncProducer, records: list[Record]) -> None:
        """Transform these records in one transaction, or abort it and go back to the committed offsets."""
        epochs = {record.topic_partition: record.leader_epoch for record in records}
        ends = {p: OffsetAndMetadata(await consumer.position(p), "", epoch) for p, epoch in epochs.items()}
        try:
            producer.begin_transaction()
            for record in records:
                for out in await self._outputs(record):
                    await producer.send(
                        out.topic,
                        out.value,
                        key=out.key,
                        partition=out.partition,
                        timestamp=out.timestamp,
                        headers=out.headers,
                    )
            await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            await _until_known(producer.commit_transaction, producer)
        except BaseException as error:  # cancellation, too: the transaction must not stay open
            self.aborted += 1
            await _abort(producer)
            consumer.seek_to_committed(*ends)
            if not _solved_by_abort(error):
                raise
            log.warning("a transaction of %d records is aborted; they are read again: %s", len(records), error)
            await consumer.cluster.backoff(self._failures)
            self._failures += 1
        else:
            self.processed += len(records)
            self._failures = 0

    async def _outputs(self, record: Record) -> Iterable[ProducerRecord]:
        """Call the function, and collect all outputs of the record before the first is sent. So a record for which the
        function raises an exception has no output except its dead letter."""
        try:
            result = self._transform(record)
            if isinstance(result, AsyncIterable):
                return [out async for out in result]
            outputs = await result if inspect.isawaitable(result) else result
            return () if outputs is None else [outputs] if isinstance(outputs, ProducerRecord) else list(outputs)
        except Exception as error:  # the user's function may raise any exception
            if self._dead_letters is None:
                error.add_note(
                    f"The record at offset {record.offset} of {record.topic_partition} could not be"
                    " transformed. Mend the function, or pass dead_letters='TOPIC' to set such records aside."
                )
                raise
            return [_dead_letter(self._dead_letters, record, error)]


async def _until_known(end: Callable[[], Awaitable[None]], producer: AsyncProducer) -> None:
    """Commit or abort. A time-out leaves the outcome unknown, so the call is repeated until there is a response."""
    while True:
        try:
            return await end()
        except KafkaError as error:
            if not (error.retriable and producer.in_transaction):
                raise


async def _abort(producer: AsyncProducer) -> None:
    """End the open transaction, if there is one. An error makes the producer unusable, and `run` opens another."""
    with contextlib.suppress(KafkaError):
        await _until_known(producer.leave_transaction, producer)


def _solved_by_abort(error: BaseException) -> bool:
    cause = error.__cause__ if isinstance(error, TransactionAbortedError) else error
    return isinstance(cause, KafkaError) and (cause.retriable or cause.code in _SOLVED_BY_ABORT)


def _dead_letter(topic: str, record: Record, error: Exception) -> ProducerRecord:
    """The record as it was read, with the headers of Connect's DeadLetterQueueReporter."""
    about = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error),
        "exception.stacktrace": "".join(traceback.format_exception(error)),
    }
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in about.items()]
    return ProducerRecord(topic, record.value, record.key, headers=[*record.headers, *headers])
