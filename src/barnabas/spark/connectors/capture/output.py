"""Machine: captured changes in the columns that the query has: records for a topic, or rows of the one table.

    output=records   topic string, key binary, value binary, headers array<struct<key,value>>, timestamp timestamp
    output=rows      `rows_output.py`

Batches have at most BATCH_ROWS rows, and about BATCH_BYTES.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from barnabas.spark.connectors.capture.options import CaptureOptions, Operation, Output
from barnabas.spark.connectors.capture.ports import CapturedChanges, TableChange
from barnabas.spark.connectors.events.changes import TableSchema

if TYPE_CHECKING:
    from barnabas.spark.connectors.capture.records_output import RecordsOutput

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 << 20

RECORDS_DDL: Final = (
    "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, timestamp timestamp"
)


def output_ddl(options: CaptureOptions, table: TableSchema | None) -> str:
    """The columns for Spark. `table` is given for output=rows. Raises OptionError."""
    if table is None:
        from barnabas.spark.connectors.capture.records_output import check_records_output

        check_records_output(options)
        return RECORDS_DDL
    from barnabas.spark.connectors.capture.rows_output import rows_ddl

    return rows_ddl(table, options.unavailable)


class CaptureOutput:
    """Makes the batches for Spark, whose Arrow schema is `schema`. Pickled for the workers."""

    def __init__(self, options: CaptureOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._made: RecordsOutput | None = None  # made in the worker

    def batches(self, captured: CapturedChanges) -> Iterator[Any]:
        """The changes as record batches, in the order of each table's changes."""
        skipped = self._options.skipped - {Operation.TRUNCATE}  # sources give truncates only if they are wanted
        tables = captured.tables
        if skipped:
            from barnabas.spark.connectors.capture.skipping import without_operations

            tables = tuple(without_operations(table, skipped) for table in tables)
        if self._options.skips_unchanged:
            from barnabas.spark.connectors.capture.skipping import without_unchanged

            tables = tuple(map(without_unchanged, tables))
        if self._options.output is Output.ROWS:
            yield from self._rows(tables)
            return
        for batch in self._records_output().records(CapturedChanges(tables, captured.transactions)):
            yield from sliced(self._conform(batch))

    def heartbeat(self, time_ms: int) -> Iterator[Any]:
        """The heartbeat record of this time."""
        for batch in self._records_output().heartbeat(time_ms):
            yield self._conform(batch)

    def _records_output(self) -> RecordsOutput:
        if self._made is None:
            from barnabas.spark.connectors.capture.records_output import RecordsOutput

            self._made = RecordsOutput(self._options)
        return self._made

    def _conform(self, batch: Any) -> Any:
        import pyarrow as pa

        columns = [batch.column(name).cast(self._schema.field(name).type) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _rows(self, tables: tuple[TableChange, ...]) -> Iterator[Any]:
        from barnabas.spark.connectors.capture.rows_output import rows_of

        for table in map(self._masked, tables):
            if len(table.changes):
                yield from sliced(rows_of(table, self._schema, self._options.unavailable))

    def _masked(self, table: TableChange) -> TableChange:
        """The rows with masked columns. Those of the key stay, since the rows of a table need it."""
        rules = self._options.events.columns
        if not rules:
            return table
        from barnabas.spark.connectors.events.masking import masked

        return structs.replace(table, changes=masked(table.changes, rules, keeps_keys=True))


def sliced(batch: Any) -> Iterator[Any]:
    """The batch in pieces that Spark takes well: a piece with one row may be larger than BATCH_BYTES."""
    rows = batch.num_rows
    if not rows:
        return
    step = max(1, min(BATCH_ROWS, rows * BATCH_BYTES // max(1, batch.nbytes)))
    for first in range(0, rows, step):
        yield batch.slice(first, step)
