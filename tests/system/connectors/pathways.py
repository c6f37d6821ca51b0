"""A query without Spark, for tests of many values: the batches that a source's reader gives, and a sink for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from barnabas.spark.connectors.capture.options import Output
from barnabas.spark.connectors.capture.output import CaptureOutput
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.capture.reader import CaptureStreamReader, parse
from barnabas.spark.connectors.capture.rows_output import rows_schema
from barnabas.spark.connectors.events.changes import TableSchema
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId
from barnabas.spark.connectors.sinking.writer import SinkPlan, stage_rows
from barnabas.spark.records.types import spark_arrow

QUERY = "6f1e3c8a-0000-4000-8000-000000000009"
RECORDS = pa.schema(
    {
        "topic": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
        "timestamp": pa.timestamp("us", "UTC"),
    }
)


class Capture:
    """A streaming query on a source. Each call of `batch` gives what the table has had since the last call: first the
    snapshot, or the first poll, and then changes. `offset` is that of an earlier capture, which this one continues.
    """

    def __init__(self, texts: Mapping[str, str], connector: Connector, offset: Any = None) -> None:
        self._options = parse(texts, connector)
        schema = RECORDS
        if self._options.output is Output.ROWS:
            source = connector.open(self._options)
            try:
                (table,) = source.read_tables()
            finally:
                source.close()
            schema = _polled_schema(table) if connector.columns else rows_schema(table, self._options.unavailable)
        self._reader = CaptureStreamReader(
            self._options, (connector.output or CaptureOutput)(self._options, schema), connector
        )
        self._schema = schema
        self.offset = offset or self._reader.initialOffset()

    def batch(self) -> Any:
        """The rows of a micro-batch as one Arrow record batch, which may be empty."""
        end = self._reader.latestOffset(self.offset, self._reader.getDefaultReadLimit())
        found = [one for task in self._reader.partitions(self.offset, end) for one in self._reader.read(task)]
        self.offset = end
        return one_batch(found, self._schema)

    def close(self) -> None:
        self._reader.stop()


@contextmanager
def capturing(texts: Mapping[str, str], connector: Connector, offset: Any = None) -> Iterator[Capture]:
    capture = Capture(texts, connector, offset)
    try:
        yield capture
    finally:
        capture.close()


def one_batch(batches: list[Any], schema: Any) -> Any:
    """Record batches as one."""
    (batch,) = pa.Table.from_batches(batches, schema).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema)
    ]
    return batch


def placed(batch: Any, partition: int = 0, first: int = 0) -> Any:
    """Records as a topic of one partition gives them, with their headers."""
    count = batch.num_rows
    return (
        batch.append_column("partition", pa.array([partition] * count, pa.int32()))
        .append_column("offset", pa.array(range(first, first + count), pa.int64()))
    )  # fmt: skip


def write(plan: SinkPlan, number: int, *batches: Any, query: str = QUERY) -> None:
    """Write a micro-batch with one task for each batch."""
    plan.target.prepare(query)
    parts = []
    for task, batch in enumerate(batches):
        parts += stage_rows(iter([batch]), plan, AttemptId(query, "run", number, task, 0)).parts
    plan.target.publish(BatchId(query, number), parts)


def _polled_schema(table: TableSchema) -> Any:
    return pa.schema([pa.field(column.name, spark_arrow(column.type)) for column in table.columns])
