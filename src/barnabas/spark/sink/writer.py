"""Shell: the writers that Spark calls. Columns are passed to the producer without a Python object per row.

    driver, planning   batch_writer / stream_writer: once per query and once per micro-batch, before the tasks
    workers, forked    write(): one task attempt; the returned message names the attempt and counts its records
    driver             commit(messages) or abort(messages)

Delivery is at least once. A task attempt has finished writing before Spark decides whether the attempt counts, an
attempt that is discarded is not notified, and a micro-batch is written again if the driver dies before the commit.
Therefore all records are acknowledged when `write` returns, and may be written again. For exactly-once delivery,
`write` would begin a transaction for each attempt, and `commit` or `abort` would end it; `Written` identifies the
attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.producer.producer import AsyncProducer
from barnabas.core.errors import BarnabasError
from barnabas.spark.connection import BlockingClient, discard, shared
from barnabas.spark.errors import SinkError
from barnabas.spark.options import SinkOptions, parse_sink_options
from barnabas.spark.sink.rows import RowLayout, row_layout

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

CHUNK_BYTES = 4 * 1024 * 1024
"""Rows are collected to about this size before they are encoded; one chunk is sent while the next one is collected."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The result of one task attempt, whose records are acknowledged by the brokers."""

    query_id: str | None
    batch_id: str | None
    partition: int
    attempt: int
    rows: int


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Create the writer of a batch query. Raises OptionError and SinkError."""
    if overwrite:
        raise SinkError("a topic cannot be overwritten; write with mode('append')")
    parsed = parse_sink_options(options)
    return BatchWriter(parsed, _layout(schema, parsed))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Create the writer of a streaming query. Raises OptionError and SinkError. In complete mode, each result is
    appended as a whole, as in Spark's connector.
    """
    parsed = parse_sink_options(options)
    return StreamWriter(parsed, _layout(schema, parsed))


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.write`."""

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options, self._layout)

    def commit(self, messages: list[Written | None]) -> None:
        """Does nothing: `write` has returned only after the records were acknowledged."""

    def abort(self, messages: list[Written | None]) -> None:
        """Does nothing: written records cannot be removed."""


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.writeStream`."""

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options, self._layout)

    # Spark also calls abort with the messages of a commit that raised. An implementation with transactions must look up
    # the decision, and must not undo a committed transaction.

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        """Does nothing: `write` has returned only after the records were acknowledged."""

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        """Does nothing: written records cannot be removed. Spark writes the micro-batch again."""


class LogWriter(BlockingClient):
    """A producer with a blocking interface."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.producer: AsyncProducer = self.run(self._open(settings))

    async def _open(self, settings: Mapping[str, str]) -> AsyncProducer:
        return AsyncProducer(settings)

    async def disconnect(self) -> None:
        await self.producer.shut(timeout_ms=0)

    def send(self, topic: str, table: pa.Table, layout: RowLayout) -> Future[Any]:
        """Start writing the rows. The future completes when all of them are acknowledged."""
        return self.submit(
            self.producer.send_arrow(
                topic,
                table,
                key="key" if layout.has_key else None,
                partition="partition" if layout.has_partition else None,
                headers="headers" if layout.has_headers else None,
            )
        )


def write_rows(iterator: Iterator[pa.RecordBatch], options: SinkOptions, layout: RowLayout) -> Written:
    """Write the rows of one task and wait for the acknowledgements. Raises SinkError and KafkaError."""
    writer = shared(LogWriter, options.client)
    rows = 0
    sent: list[Future[Any]] = []
    try:
        for table in chunks(iterator):
            _wait(sent)  # one chunk at a time keeps the rows of a partition in order
            sent = [writer.send(topic, part, layout) for topic, part in by_topic(table, layout)]
            rows += table.num_rows
        _wait(sent)
    except BarnabasError:
        discard(LogWriter, options.client)
        raise
    context = TaskContext.get()
    return Written(
        context.getLocalProperty("sql.streaming.queryId") if context else None,
        context.getLocalProperty("streaming.sql.batchId") if context else None,
        context.partitionId() if context else 0,
        context.attemptNumber() if context else 0,
        rows,
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


def by_topic(table: pa.Table, layout: RowLayout) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each topic, in their original order."""
    import pyarrow.compute as pc

    if layout.topic is not None:
        yield layout.topic, table
        return
    topics = table["topic"]
    if topics.null_count:
        raise SinkError("a row has no topic: its column 'topic' is null. Fill it in, or set the option topic")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, table if len(names) == 1 else table.filter(pc.equal(topics, name))


def _wait(sent: list[Future[Any]]) -> None:
    try:
        for future in sent:
            future.result()
    except ValueError as error:  # the encoder's error for a partition that does not exist
        raise SinkError(str(error)) from error


def _layout(schema: StructType, options: SinkOptions) -> RowLayout:
    return row_layout({field.name: field.dataType.simpleString() for field in schema.fields}, options)
