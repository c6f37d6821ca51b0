"""Machine: polled rows as records in the form of Connect's JDBC source, or as rows.

    output=records   topic: topic.prefix and the name of the table (of a query: topic.prefix alone); no key; the value
                     is a struct of the row's columns, whose schema has the name of the table
    output=rows      the columns of the table

Decimals, dates and times are Connect's Decimal, Date, Time and Timestamp. A time without a zone is one of db.timezone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.arrow_fields import NAME, OPTIONAL
from barnabas.spark.connectors.capture.errors import TableChangedError
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.output import CaptureOutput, output_ddl, sliced
from barnabas.spark.connectors.capture.ports import CapturedChanges, TableChange
from barnabas.spark.connectors.capture.records_output import RecordsOutput
from barnabas.spark.connectors.events.changes import ChangeBatch, ColumnSchema, TableSchema
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE
from barnabas.spark.records.types import conform, spark_ddl

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

QUERY: Final = "query"
"""The name of the table that a query gives."""
_NOT_IN_TOPICS: Final = re.compile(r"[^a-zA-Z0-9._\-]")


def polled_columns(options: CaptureOptions, table: TableSchema | None) -> str:
    """The columns for Spark, as DDL."""
    if table is None:
        return output_ddl(options, None)
    return ", ".join(f"{_quoted(column.name)} {spark_ddl(column.type)}" for column in table.columns)


def make_polled_output(options: CaptureOptions, schema: Any) -> PolledOutput:
    return PolledOutput(options, schema)


class PolledOutput(CaptureOutput):
    """Makes the batches for Spark."""

    def _records_output(self) -> RecordsOutput:
        if self._made is None:
            self._made = PolledRecords(self._options)
        return self._made

    def _rows(self, tables: tuple[TableChange, ...]) -> Iterator[Any]:
        for table in tables:
            yield from sliced(_rows_of(table.changes, self._schema))


class PolledRecords(RecordsOutput):
    """Makes records with the converters of a query."""

    def records(self, captured: CapturedChanges) -> Iterator[Any]:
        given = self._options.given
        for table in captured.tables:
            yield from self._encode(
                row_records(
                    table.changes,
                    self._options.events.topic_prefix,
                    is_query=given.get("query") is not None,
                    zone=given.get("db.timezone"),
                )
            )


def row_records(changes: ChangeBatch, prefix: str, *, is_query: bool, zone: str) -> Any:
    """Rows as a records batch (`transforms/records.py`)."""
    table = changes.table
    rows = len(changes)
    topic = prefix if is_query else _NOT_IN_TOPICS.sub("_", prefix + table.table)
    arrays = [_in_utc(changes.after.field(place), zone, column) for place, column in enumerate(table.columns)]
    fields = [
        pa.field(column.name, array.type, column.nullable) for column, array in zip(table.columns, arrays, strict=True)
    ]
    arrays = [
        _without_nulls(array, column, table) if not column.nullable and array.null_count else array
        for column, array in zip(table.columns, arrays, strict=True)
    ]
    metadata = {NAME: table.table.encode(), OPTIONAL: b"false"}
    columns = {
        "key": pa.nulls(rows, pa.string()),
        "value": pa.StructArray.from_arrays(arrays, fields=fields),
        "headers": pa.nulls(rows, HEADERS_TYPE),
        "topic": pa.repeat(pa.scalar(topic), rows),
        "partition": pa.nulls(rows, pa.int32()),
        "timestamp": pa.array(changes.ts_us, pa.timestamp("us", "UTC")),
    }
    schema = pa.schema(
        [pa.field(name, column.type, True, metadata if name == "value" else None) for name, column in columns.items()]
    )
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _in_utc(array: Any, zone: str, column: ColumnSchema) -> Any:
    if not pa.types.is_timestamp(array.type):
        return array
    if array.type.tz is None:
        array = _pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="latest")
    return _pc.floor_temporal(array.cast(pa.timestamp("us", "UTC")), unit="millisecond").cast(pa.timestamp("ms", "UTC"))


def _without_nulls(array: Any, column: ColumnSchema, table: TableSchema) -> Any:
    raise TableChangedError(
        f"the column {column.name} of {table.table} is declared NOT NULL, and a row has null there: correct the row, or"
        " the declaration"
    )


def _rows_of(changes: ChangeBatch, schema: Any) -> Any:
    table = changes.table
    places = {column.name: place for place, column in enumerate(table.columns)}
    new = [name for name in places if schema.get_field_index(name) < 0]
    if new:
        raise TableChangedError(
            f"the table {table.id} has a column {new[0]}, which the query does not have: restart the query, so"
            " that it has the current columns"
        )
    arrays = []
    for field in schema:
        if field.name not in places:
            arrays.append(pa.nulls(len(changes), field.type))
            continue
        values = changes.after.field(places[field.name])
        try:
            arrays.append(conform(values, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TableChangedError(
                f"the column {field.name} of {table.id} has values of type {values.type} that the query's type"
                f" {field.type} has no place for ({error}): restart the query, so that it has the current types"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
