"""Shell: writes the rows of one task attempt. Columns are passed to the producer without a Python object per row.

at-least-once   one producer per worker process, kept from task to task
exactly-once    one transactional producer per attempt; connections and metadata are kept from task to task
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import PRODUCER_CONFIGS, resolve_config
from barnabas.client.options import ClusterConfig
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import ConfigResource, HandedOverTransaction, RecordMetadata
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import BlockingClient, discard, shared
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.visibility import newest_batches
from barnabas.spark.errors import SinkError
from barnabas.spark.sink.options import TWO_PHASE_SETTING, ExactlyOnce, SinkOptions
from barnabas.spark.sink.rows import RecordColumns, RowLayout, record_columns
from barnabas.spark.sink.topic_creator import TopicCreator

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("barnabas.spark")

CHUNK_BYTES = 4 * 1024 * 1024
"""Rows are collected to about this size before they are encoded; one chunk is sent while the next one is collected."""
MAX_TIMEOUT_MS: Final = 900_000
"""Kafka's default of transaction.max.timeout.ms, for brokers that do not show theirs."""
ABORT_TIMEOUT_S: Final = 10.0
_NO_TWO_PHASE: Final = frozenset(
    {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST}
)


@dataclass(frozen=True)
class Attempt:
    """What a task attempt knows of itself. `generation` is that of the ledger when the micro-batch was planned."""

    query_id: str
    run_id: str
    batch_id: int
    partition: int
    attempt: int
    generation: int = 0


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The result of one task attempt, whose records are acknowledged by the brokers.

    `transaction` is open and has these records; None if there are none, or without exactly-once delivery. Unless it is
    `two_phase`, the brokers abort it after a time-out. `newest` has the first offset of the newest batch that was
    written to each partition, and nothing with acks=0.
    """

    attempt: Attempt
    rows: int
    transaction: HandedOverTransaction | None = None
    two_phase: bool = False
    newest: Mapping[TopicPartition, int] = field(default_factory=dict)


def this_attempt() -> Attempt:
    """The running task attempt."""
    context = TaskContext.get()
    if context is None:
        return Attempt("", "", 0, 0, 0)
    return Attempt(
        query_id=context.getLocalProperty("sql.streaming.queryId") or "",
        run_id=context.getLocalProperty("spark.jobGroup.id") or "",
        batch_id=int(context.getLocalProperty("streaming.sql.batchId") or 0),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
    )


# -- at least once -----------------------------------------------------------------------------------------------------


class LogWriter(BlockingClient):
    """A producer with a blocking interface."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.producer: AsyncProducer = self.run(self._open(settings))

    async def _open(self, settings: Mapping[str, str]) -> AsyncProducer:
        return AsyncProducer(settings)

    async def disconnect(self) -> None:
        await self.producer.shut(timeout_ms=0)

    def send(self, records: RecordColumns) -> Future[list[RecordMetadata]]:
        """Start writing the records. The future completes when all of them are acknowledged."""
        return self.submit(_send(self.producer, records))


def write_rows(iterator: Iterator[pa.RecordBatch], options: SinkOptions, layout: RowLayout) -> Written:
    """Write the rows of one task and wait for the acknowledgements. Raises SinkError and KafkaError."""
    writer = shared(LogWriter, options.client)
    rows = 0
    newest: dict[TopicPartition, int] = {}
    sent: list[Future[list[RecordMetadata]]] = []
    try:
        for table in chunks(iterator):
            newest = newest_batches([newest, *_batches(sent)])  # waits: one chunk at a time keeps the order of rows
            sent = [writer.send(records) for records in encoded(table, layout, options)]
            rows += table.num_rows
        newest = newest_batches([newest, *_batches(sent)])
    except BarnabasError:
        discard(LogWriter, options.client)
        raise
    return Written(this_attempt(), rows, newest=newest)


# -- exactly once ------------------------------------------------------------------------------------------------------


class TransactionalWriter(BlockingClient):
    """The connections of a worker process, and one transactional producer for the running task."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._settings = settings
        self._cluster: Cluster = self.run(self._open())
        self._two_phase: bool | None = None
        """Whether the brokers offer two-phase commit; None before the first transaction."""
        self._timeout_ms: int | None = None

    async def _open(self) -> Cluster:
        return Cluster(ClusterConfig.from_settings(resolve_config(PRODUCER_CONFIGS, self._settings, {})))

    async def disconnect(self) -> None:
        await self._cluster.close()

    async def begin(self, transactional_id: str, options: ExactlyOnce) -> tuple[AsyncProducer, bool]:
        """A producer with an open transaction, and whether that is one of two-phase commit, which never times out.

        Unless the option says whether to use two-phase commit, it is used if the brokers offer it.
        """
        wanted = self._two_phase if options.two_phase is None else options.two_phase
        if wanted is not False:
            try:
                producer = await self._begin(transactional_id, {TWO_PHASE_SETTING: True})
                self._two_phase = True
                return producer, True
            except KafkaError as error:
                if error.code not in _NO_TWO_PHASE:
                    raise
                if wanted:
                    raise SinkError(
                        f"the brokers do not allow a transaction of two-phase commit for {transactional_id} ({error})."
                        f" Set {TWO_PHASE_SETTING}=true on Barnabas brokers, or leave the option"
                        f" kafka.{TWO_PHASE_SETTING} out: then the brokers abort a transaction after a time-out"
                    ) from error
        if self._timeout_ms is None:
            self._timeout_ms = await self._max_timeout_ms()
        producer = await self._begin(transactional_id, {"transaction.timeout.ms": self._timeout_ms})
        if options.two_phase is None:
            self._two_phase = False
        return producer, False

    async def _begin(self, transactional_id: str, more: Mapping[str, object]) -> AsyncProducer:
        settings: dict[str, object] = {**self._settings, "transactional.id": transactional_id, **more}
        if TWO_PHASE_SETTING in more:
            settings.pop("transaction.timeout.ms", None)
        producer = AsyncProducer(settings, cluster=self._cluster)
        try:
            await producer.init_transactions()
        except BaseException:  # cancellation, too: the producer's task must end
            await producer.shut(timeout_ms=0)
            raise
        producer.begin_transaction()
        return producer

    async def _max_timeout_ms(self) -> int:
        """The longest time-out that the brokers accept, unless the user has given one."""
        if "transaction.timeout.ms" in self._settings:
            return int(self._settings["transaction.timeout.ms"])
        await self._cluster.refresh()
        broker = ConfigResource.broker(min(self._cluster.metadata.brokers))
        admin = AsyncAdmin(cluster=self._cluster)
        try:
            found = (await admin.describe_configs([broker], names=["transaction.max.timeout.ms"]))[broker]
        except KafkaError as error:
            found = error
        if isinstance(found, KafkaError):
            log.info("the brokers do not show transaction.max.timeout.ms (%s); %d is assumed", found, MAX_TIMEOUT_MS)
            return MAX_TIMEOUT_MS
        entry = found.get("transaction.max.timeout.ms")
        return MAX_TIMEOUT_MS if entry is None or entry.value is None else int(entry.value)


def write_in_transaction(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, layout: RowLayout, attempt: Attempt
) -> Written:
    """Write the rows of one task attempt in a transaction, which stays open. Raises SinkError and KafkaError."""
    exactly_once = options.exactly_once
    assert exactly_once is not None
    name = SinkName(exactly_once.id_prefix, attempt.query_id)
    transactional_id = name.transactional_id(attempt.run_id, attempt.batch_id, attempt.partition, attempt.attempt)
    writer = shared(TransactionalWriter, options.client)
    producer: AsyncProducer | None = None
    two_phase = False
    rows = 0
    newest: dict[TopicPartition, int] = {}
    sent: list[Future[list[RecordMetadata]]] = []
    try:
        for table in chunks(iterator):
            if producer is None:  # a task without rows needs no transaction
                producer, two_phase = writer.run(writer.begin(transactional_id, exactly_once))
            newest = newest_batches([newest, *_batches(sent)])  # waits: one chunk at a time keeps the order of rows
            sent = [writer.submit(_send(producer, records)) for records in encoded(table, layout, options)]
            rows += table.num_rows
        newest = newest_batches([newest, *_batches(sent)])
        transaction = None if producer is None else writer.run(producer.hand_over_transaction())
    except BaseException as error:  # `iterator` raises what the user's plan raises; Spark interrupts killed tasks
        if producer is not None:
            writer.run(_abort(producer))
        if isinstance(error, BarnabasError):
            discard(TransactionalWriter, options.client)
        raise
    if producer is not None:
        writer.run(producer.shut(timeout_ms=0))
    return Written(attempt, rows, transaction, two_phase, newest)


async def _abort(producer: AsyncProducer) -> None:
    """Abort the transaction of a failed attempt; if that is not possible now, the driver does it later."""
    with contextlib.suppress(BarnabasError, TimeoutError):
        async with asyncio.timeout(ABORT_TIMEOUT_S):
            await producer.abort_transaction()
    await producer.shut(timeout_ms=0)


# -- both --------------------------------------------------------------------------------------------------------------


def encoded(table: pa.Table, layout: RowLayout, options: SinkOptions) -> Iterator[RecordColumns]:
    """The records of a table of rows, topic by topic, with typed keys and values in their formats. Their topics exist,
    or are created if the options say how.
    """
    for records in record_columns(table, layout):
        if options.creation is not None:
            shared(TopicCreator, options.client).ensure(records.topic, options.creation)
        if not options.formats.typed:
            yield records
            continue
        from barnabas.spark.records.encoding import encode_records

        yield replace(records, table=encode_records(records.table, options.formats, records.topic))


async def _send(producer: AsyncProducer, records: RecordColumns) -> list[RecordMetadata]:
    return await producer.send_arrow(
        records.topic,
        records.table,
        value=records.value,
        key=records.key,
        partition=records.partition,
        timestamp=records.timestamp,
        headers=records.headers,
    )


def chunks(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Collect record batches into tables of about CHUNK_BYTES, with column names in lower case."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in iterator:
        if batch.num_rows:
            gathered.append(batch.rename_columns([name.lower() for name in batch.schema.names]))
            size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _batches(sent: list[Future[list[RecordMetadata]]]) -> list[dict[TopicPartition, int]]:
    """The first offset of the newest batch of each partition, for each of the calls. Waits for them."""
    return [
        newest_batches({each.topic_partition: each.offset} for each in batches if each.offset >= 0)
        for batches in _wait(sent)
    ]


def _wait(sent: list[Future[list[RecordMetadata]]]) -> list[list[RecordMetadata]]:
    try:
        return [future.result() for future in sent]
    except ValueError as error:  # the encoder's error for a partition that does not exist
        raise SinkError(str(error)) from error
