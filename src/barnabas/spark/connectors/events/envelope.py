"""Machine: row changes -> change events in Debezium's envelope, as a batch of records (`transforms/records.py`).

    key      the key columns, or null if the table has no key
    value    {before, after, source, transaction, op, ts_ms, ts_us, ts_ns}; null for a tombstone
    headers  __debezium.context.*, __debezium.newkey or __debezium.oldkey, __barnabas.unavailable (`presence.py`)

A delete is an event and a tombstone. An update that changes the key is a delete of the old key with its tombstone, and
a create of the new one. A truncate is an event without a key and without rows. `ts_ms` of the envelope is that of the
source, not the time at which the event was made, so that the same changes always give the same bytes.
Source: io.debezium.data.Envelope, io.debezium.relational.RelationalChangeRecordEmitter, TableSchemaBuilder.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.arrow_fields import record_field, schema_of
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType, struct_schema
from barnabas.spark.connectors.converters.json_texts import json_texts
from barnabas.spark.connectors.events.changes import CREATE, DELETE, ChangeBatch, TableSchema
from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.field_types import field_schema
from barnabas.spark.connectors.events.field_values import (
    field_values,
    fill_unavailable,
    has_placeholder,
    unavailable_placeholder,
)
from barnabas.spark.connectors.events.masking import masked
from barnabas.spark.connectors.events.names import adjusted_name
from barnabas.spark.connectors.events.options import EventOptions
from barnabas.spark.connectors.events.presence import UNAVAILABLE_HEADER, unavailable_headers
from barnabas.spark.connectors.events.sources import source_blocks, source_schema

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

ORDINAL: Final = "__ordinal"
"""The column that has the ordinal of each record's change, by which records of several tables are put into order."""

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_NOT_IN_TOPICS: Final = re.compile(r"[^a-zA-Z0-9._\-]")
_INT64: Final = ConnectSchema(ConnectType.INT64)
_TRANSACTION: Final = struct_schema(
    "event.block",
    {"id": ConnectSchema(ConnectType.STRING), "total_order": _INT64, "data_collection_order": _INT64},
    optional=True,
    version=1,
)


def topic_of(table: TableSchema, options: EventOptions) -> str:
    """The topic of a table's events: prefix.schema.table, or prefix.database.table for MySQL."""
    return _NOT_IN_TOPICS.sub("_", f"{options.topic_prefix}.{table.id}")


def change_records(changes: ChangeBatch, options: EventOptions) -> Any:
    """The records of the changes, in their order, with the column ORDINAL.

    Raises EventError for a value that has no form in events.
    """
    plan = _plan(changes, options)
    topic = topic_of(changes.table, options)
    key_field, keys = _keys(changes, plan, topic, options)
    shown = masked(changes, options.columns) if options.columns else changes
    value_field, values = _values(shown, plan, topic, options)
    rows = len(plan.row)
    unavailable = _unavailable(shown, values, plan, options)
    columns = {
        "key": keys,
        "value": values,
        "headers": _headers(plan, keys, key_field, unavailable, options),
        "topic": pa.repeat(pa.scalar(topic), rows),
        "partition": pa.nulls(rows, pa.int32()),
        "timestamp": pa.array(changes.ts_us[plan.row], pa.timestamp("us", "UTC")),
        ORDINAL: pa.array(changes.ordinal[plan.row], pa.int64()),
    }
    fields = {"key": key_field, "value": value_field}
    schema = pa.schema([fields.get(name) or pa.field(name, column.type) for name, column in columns.items()])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


class _Plan(Struct):
    """The records: for each one the row of its change, and what it is (numpy)."""

    row: Any
    tombstone: Any
    left: Any  # the delete of an old key, and its tombstone
    entered: Any  # the create of a new key
    op: Any
    one_each: bool
    """Whether every change has one record, as in a snapshot: the rows are those of the changes."""

    def take(self, column: Any) -> Any:
        """The values of a column of the changes, for each record."""
        return column if self.one_each else column.take(pa.array(self.row))

    @property
    def by_before(self) -> Any:
        """The records whose key is that of the old row."""
        return self.left | (self.op == DELETE)


def _plan(changes: ChangeBatch, options: EventOptions) -> _Plan:
    rows = len(changes)
    tombstone = 1 if options.tombstones_on_delete else 0
    moved = np.zeros(rows, np.bool_) if changes.key_changed is None else changes.key_changed
    counts = 1 + moved + tombstone * (moved | (changes.op == DELETE))
    row = np.repeat(np.arange(rows), counts)
    place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    is_moved = moved[row]
    entered = is_moved & (place == counts[row] - 1)
    left = is_moved & ~entered
    op = np.where(left, DELETE, np.where(entered, CREATE, changes.op[row])).astype(np.uint8)
    tombstones = (place == 1) & ~entered & (op == DELETE)
    return _Plan(row, tombstones, left, entered, op, one_each=len(row) == rows)


def _pick(before: Any, after: Any, plan: _Plan) -> Any:
    """Values of one of two columns; a column that is None has no row that is used."""
    if before is None or after is None:
        return plan.take(after if before is None else before)
    return _pc.if_else(pa.array(plan.by_before), plan.take(before), plan.take(after))


def _keys(changes: ChangeBatch, plan: _Plan, topic: str, options: EventOptions) -> tuple[Any, Any]:
    columns = [changes.table.columns[at] for at in changes.table.key]
    if not columns:
        schema = ConnectSchema(ConnectType.STRING, True)
        return record_field("key", schema), pa.nulls(len(plan.row), pa.string())
    schemas = [field_schema(column, options) for column in columns]
    names = [adjusted_name(column.name, options.field_names, is_field=True) for column in columns]
    name = adjusted_name(f"{topic}.Key", options.schema_names)
    schema = struct_schema(name, dict(zip(names, schemas, strict=True)))
    arrays = []
    for at, column, one in zip(changes.table.key, columns, schemas, strict=True):
        sides = [None if side is None else side.field(at) for side in (changes.before, changes.after)]
        arrays.append(field_values(_pick(sides[0], sides[1], plan), column, one, options))
    field = record_field("key", schema)
    return field, pa.StructArray.from_arrays(arrays, fields=list(field.type))


def columns_without_placeholder(changes: ChangeBatch, options: EventOptions) -> list[str]:
    """The columns with values that the database did not send, for which nothing can stand in an event."""
    columns = changes.table.columns
    return [
        columns[at].name
        for at, missing in sorted(changes.unavailable.items())
        if missing.any() and unavailable_placeholder(field_schema(columns[at], options), options) is None
    ]


def _row_schema(table: TableSchema, topic: str, options: EventOptions) -> ConnectSchema:
    fields = {
        adjusted_name(column.name, options.field_names, is_field=True): field_schema(column, options)
        for column in table.columns
    }
    if len(fields) < len(table.columns):
        raise EventError(
            f"two columns of {table.id} have one name in events: set field.name.adjustment.mode=avro_unicode, or leave"
            " one out with column.exclude.list"
        )
    return struct_schema(adjusted_name(f"{topic}.Value", options.schema_names), fields, optional=True)


def _side(
    side: Any, changes: ChangeBatch, schema: ConnectSchema, kind: Any, plan: _Plan, there: Any, options: EventOptions
) -> Any:
    """The old or new row of each record, null where `there` (numpy, bool) is false."""
    rows = len(plan.row)
    if side is None or not there.any():
        return pa.nulls(rows, kind)
    arrays = []
    for at, (column, part) in enumerate(zip(changes.table.columns, schema.fields, strict=True)):
        values = field_values(side.field(at), column, part.schema, options)
        missing = changes.unavailable.get(at) if side is changes.after else None
        if missing is not None:
            values = fill_unavailable(values, missing, part.schema, options)
        arrays.append(values)
    mask = None if there.all() else pa.array(~there)
    return pa.StructArray.from_arrays([plan.take(array) for array in arrays], fields=list(kind), mask=mask)


def _values(changes: ChangeBatch, plan: _Plan, topic: str, options: EventOptions) -> tuple[Any, Any]:
    row_schema = _row_schema(changes.table, topic, options)
    schema = struct_schema(
        adjusted_name(f"{topic}.Envelope", options.schema_names),
        {
            "before": row_schema,
            "after": row_schema,
            "source": source_schema(changes),
            "transaction": _TRANSACTION,
            "op": ConnectSchema(ConnectType.STRING),
            "ts_ms": _INT64.as_optional(),
            "ts_us": _INT64.as_optional(),
            "ts_ns": _INT64.as_optional(),
        },
        version=2,
    )
    field = record_field("value", schema)
    kinds = {part.name: part.type for part in field.type}
    valid = {
        name: np.zeros(len(changes), np.bool_) if side is None else side.is_valid().to_numpy(zero_copy_only=False)
        for name, side in (("before", changes.before), ("after", changes.after))
    }
    has_before = valid["before"][plan.row] & ~plan.entered
    has_after = valid["after"][plan.row] & ~plan.left
    ts_us = changes.ts_us[plan.row]
    arrays = [
        _side(changes.before, changes, row_schema, kinds["before"], plan, has_before, options),
        _side(changes.after, changes, row_schema, kinds["after"], plan, has_after, options),
        plan.take(source_blocks(changes, options)).cast(kinds["source"]),
        _transactions(changes, plan, kinds["transaction"], options),
        pa.array(plan.op.view("S1"), pa.binary()).cast(pa.string()),
        pa.array(ts_us // 1000, pa.int64()),
        pa.array(ts_us, pa.int64()),
        pa.array(ts_us * 1000, pa.int64()),
    ]
    mask = pa.array(plan.tombstone) if plan.tombstone.any() else None
    return field, pa.StructArray.from_arrays(arrays, fields=list(field.type), mask=mask)


def _transactions(changes: ChangeBatch, plan: _Plan, kind: Any, options: EventOptions) -> Any:
    if not options.transaction_metadata or changes.transaction is None:
        return pa.nulls(len(plan.row), kind)
    ids = plan.take(changes.transaction)
    arrays = [
        ids,
        pa.array(changes.total_order[plan.row] + plan.entered, pa.int64()),
        pa.array(changes.table_order[plan.row] + plan.entered, pa.int64()),
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=ids.is_null() if ids.null_count else None)


def _unavailable(changes: ChangeBatch, values: Any, plan: _Plan, options: EventOptions) -> tuple[Any, list[bytes]]:
    """(which records have the header UNAVAILABLE_HEADER, its value for each of them): those of whose new row a value
    was not sent, or is the text of the placeholder.
    """
    noted = np.zeros(len(plan.row), np.bool_)
    unsent: dict[str, Any] = {}
    after = values.field("after")
    there = after.is_valid().to_numpy(zero_copy_only=False)
    for at, field in enumerate(after.type):
        mask = changes.unavailable.get(at)
        if mask is not None:
            unsent[field.name] = mask[plan.row] & there
            noted |= unsent[field.name]
        found = has_placeholder(after.field(at), options)
        if found is not None:
            noted |= found & there
    return noted, unavailable_headers(unsent, np.flatnonzero(noted).tolist())


def _headers(
    plan: _Plan, keys: Any, key_field: Any, unavailable: tuple[Any, list[bytes]], options: EventOptions
) -> Any:
    """The headers of each record. A tombstone of an old key has the same ones as the event before it."""
    context = options.context_headers
    rows = len(plan.row)
    moved = plan.left | plan.entered
    noted, noted_values = unavailable
    fixed = len(context)
    counts = fixed + moved.astype(np.int64) + noted
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    names = [name for name, _ in context]
    texts = [text.encode() for _, text in context]
    key_names = pa.array([*names, "__debezium.newkey", "__debezium.oldkey", UNAVAILABLE_HEADER])
    is_key = (place == fixed) & np.repeat(moved, counts)
    number = np.where(place < fixed, place, np.where(is_key, fixed + np.repeat(plan.entered, counts), fixed + 2))
    values = pa.array([*texts, b"", b"", b""], pa.binary()).take(pa.array(number))
    if moved.any():
        values = _pc.replace_with_mask(
            values, pa.array(is_key), _other_keys(plan, keys, key_field).filter(pa.array(moved))
        )
    if noted_values:
        values = _pc.replace_with_mask(values, pa.array(number == fixed + 2), pa.array(noted_values, pa.binary()))
    pairs = pa.StructArray.from_arrays([key_names.take(pa.array(number)), values], names=["key", "value"])
    assert len(offsets) == rows + 1
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs).cast(HEADERS_TYPE)


def _other_keys(plan: _Plan, keys: Any, key_field: Any) -> Any:
    """For each record of a changed key the other key, in JSON: the records of one change follow one another."""
    texts = json_texts(keys, schema_of(key_field).as_optional()).cast(pa.string()).cast(pa.binary())
    rows = np.arange(len(plan.row))
    first = np.searchsorted(plan.row, plan.row, side="left")
    last = np.searchsorted(plan.row, plan.row, side="right") - 1
    other = np.where(plan.left, last, np.where(plan.entered, first, rows))
    return texts.take(pa.array(other))
