"""Shell: the writers that Spark calls. Columns go to the producer as they come; there is no Python object per row.

    driver, planning   batch_writer / stream_writer: once per job, and once per micro-batch, before its tasks
    workers, forked    write(): one task attempt; its message names the attempt and says what it wrote
    driver             commit(messages) or abort(messages)

Delivery is at least once. A task has finished writing when Spark decides whether its attempt counts, an attempt that
loses is told nothing, and a micro-batch is written again when the driver dies before it is committed; so what is
written must already be acknowledged when `write` returns, and may then be written once more. Exactly once will
begin a transaction for each attempt in `write` and end it in `commit` or `abort`: `Written` says which is which.
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
from barnabas.spark.rows import RowLayout, row_layout

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

CHUNK_BYTES = 4 * 1024 * 1024
"""Rows are gathered to about this size before they are encoded; a chunk is sent while the next one is gathered."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not followed by mypy
    """What one task attempt has written, acknowledged by the brokers."""

    query_id: str | None
    batch_id: str | None
    partition: int
    attempt: int
    rows: int


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Raises OptionError, SinkError."""
    if overwrite:
        raise SinkError("a topic cannot be overwritten; write with mode('append')")
    parsed = parse_sink_options(options)
    return BatchWriter(parsed, _layout(schema, parsed))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Raises OptionError, SinkError. In complete mode each result is appended as a whole, as by Spark's connector."""
    parsed = parse_sink_options(options)
    return StreamWriter(parsed, _layout(schema, parsed))


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """`df.write`."""

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options, self._layout)

    def commit(self, messages: list[Written | None]) -> None:
        """Nothing: the records are in the log since `write`."""

    def abort(self, messages: list[Written | None]) -> None:
        """Nothing can be taken back."""


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """`df.writeStream`."""

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options, self._layout)

    # Spark also calls abort with the messages of a commit that raised: once there are transactions, what
    # is decided must be looked up there, and not undone.

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        """Nothing: the records are in the log since `write`."""

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        """Nothing can be taken back; the micro-batch will be written again."""


class LogWriter(BlockingClient):
    """A producer as Spark's synchronous code sees it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.producer: AsyncProducer = self.run(self._open(settings))

    async def _open(self, settings: Mapping[str, str]) -> AsyncProducer:
        return AsyncProducer(settings)

    async def disconnect(self) -> None:
        await self.producer.close(timeout_ms=0)

    def send(self, topic: str, table: pa.Table, layout: RowLayout) -> Future[Any]:
        """Begins to write the rows; done when all of them are acknowledged."""
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
    """Writes one task's rows and waits until the brokers have them. Raises SinkError, KafkaError."""
    writer = shared(LogWriter, options.client)
    rows = 0
    sent: list[Future[Any]] = []
    try:
        for table in chunks(iterator):
            _wait(sent)  # one chunk at a time: the order within a partition is the order of the rows
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
    """Record batches gathered to tables of about CHUNK_BYTES, their columns in lower case."""
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
    """The rows of each topic, in their order."""
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
    except ValueError as error:  # what the encoder says of a partition that does not exist
        raise SinkError(str(error)) from error


def _layout(schema: StructType, options: SinkOptions) -> RowLayout:
    return row_layout({field.name: field.dataType.simpleString() for field in schema.fields}, options)
