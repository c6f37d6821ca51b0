"""Machine: the block `source` of change events: where a change comes from.

The fields of all databases, then those of PostgreSQL or MySQL, in Debezium's order. `sequence` of PostgreSQL is the
text of a JSON list: the commit LSN of the transaction before (null in a snapshot), and the LSN of the change.
Source: io.debezium.connector.AbstractSourceInfoStructMaker and its subclasses.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.arrow_fields import arrow_type
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType, struct_schema
from barnabas.spark.connectors.events.changes import ChangeBatch, MySqlPositions, NoPositions, PostgresPositions
from barnabas.spark.connectors.events.options import EventOptions

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_TEXT: Final = ConnectSchema(ConnectType.STRING)
_OPTIONAL_TEXT: Final = _TEXT.as_optional()
_INT32: Final = ConnectSchema(ConnectType.INT32)
_INT64: Final = ConnectSchema(ConnectType.INT64)
_OPTIONAL_INT64: Final = _INT64.as_optional()
_SNAPSHOT: Final = ConnectSchema(
    ConnectType.STRING,
    True,
    "io.debezium.data.Enum",
    1,
    parameters={"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
    default="false",
)
_COMMON: Final = {
    "version": _TEXT,
    "connector": _TEXT,
    "name": _TEXT,
    "ts_ms": _INT64,
    "snapshot": _SNAPSHOT,
    "db": _TEXT,
    "sequence": _OPTIONAL_TEXT,
    "ts_us": _OPTIONAL_INT64,
    "ts_ns": _OPTIONAL_INT64,
}
_POSTGRES: Final = struct_schema(
    "io.debezium.connector.postgresql.Source",
    {
        **_COMMON,
        "schema": _TEXT,
        "table": _TEXT,
        "txId": _OPTIONAL_INT64,
        "lsn": _OPTIONAL_INT64,
        "xmin": _OPTIONAL_INT64,
    },
)
_MYSQL: Final = struct_schema(
    "io.debezium.connector.mysql.Source",
    {
        **_COMMON,
        "table": _OPTIONAL_TEXT,
        "server_id": _INT64,
        "gtid": _OPTIONAL_TEXT,
        "file": _TEXT,
        "pos": _INT64,
        "row": _INT32,
        "thread": _OPTIONAL_INT64,
        "query": _OPTIONAL_TEXT,
    },
)


def source_schema(changes: ChangeBatch) -> ConnectSchema:
    """The schema of the block for changes of this database."""
    return _POSTGRES if isinstance(changes.positions, PostgresPositions) else _MYSQL


def source_blocks(changes: ChangeBatch, options: EventOptions) -> Any:
    """The block of each change, as a struct column."""
    rows = len(changes)
    table = changes.table
    columns = {
        "version": _repeat(options.version, rows),
        "connector": _repeat(options.connector, rows),
        "name": _repeat(options.topic_prefix, rows),
        "ts_ms": pa.array(changes.ts_us // 1000, pa.int64()),
        "snapshot": _repeat("false", rows) if changes.snapshot is None else changes.snapshot,
        "db": _repeat(table.database, rows),
        "sequence": pa.nulls(rows, pa.string()),
        "ts_us": pa.array(changes.ts_us, pa.int64()),
        "ts_ns": pa.array(changes.ts_us * 1000, pa.int64()),
        "schema": _repeat(table.schema, rows),
        "table": _repeat(table.table, rows),
        **_positions(changes.positions, rows),
    }
    schema = source_schema(changes)
    kind = arrow_type(schema)
    arrays = [columns[part.name].cast(field.type) for part, field in zip(schema.fields, kind, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _repeat(value: str, rows: int) -> Any:
    return pa.repeat(pa.scalar(value, pa.string()), rows)


def _unless_negative(numbers: Any) -> Any:
    return pa.array(numbers, pa.int64(), mask=np.asarray(numbers) < 0)


def _positions(positions: PostgresPositions | MySqlPositions | NoPositions, rows: int) -> dict[str, Any]:
    assert not isinstance(positions, NoPositions), "polled rows have no block source"
    if isinstance(positions, PostgresPositions):
        last = _unless_negative(positions.last_commit_lsn).cast(pa.string())
        before = _pc.fill_null(_pc.binary_join_element_wise('["', last, '"', ""), "[null")
        own = pa.array(positions.lsn, pa.int64()).cast(pa.string())
        return {
            "sequence": _pc.binary_join_element_wise(before, ',"', own, '"]', ""),
            "txId": _unless_negative(positions.xid),
            "lsn": pa.array(positions.lsn, pa.int64()),
            "xmin": pa.nulls(rows, pa.int64()),
        }
    return {
        "server_id": pa.array(positions.server_id, pa.int64()),
        "gtid": positions.gtid,
        "file": positions.file,
        "pos": pa.array(positions.pos, pa.int64()),
        "row": pa.array(positions.row, pa.int32()),
        "thread": pa.nulls(rows, pa.int64()) if positions.thread is None else _unless_negative(positions.thread),
        "query": pa.nulls(rows, pa.string()) if positions.query is None else positions.query,
    }
