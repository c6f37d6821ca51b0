"""Machine: change events made flat, as Debezium's ExtractNewRecordState does: the value becomes the row.

    delete.tombstone.handling.mode   a delete event                    its tombstone
    tombstone (default)              left out                          stays
    drop                             left out                          left out
    rewrite                          the old row, __deleted = true     left out
    rewrite-with-tombstone           the old row, __deleted = true     stays
    delete-to-tombstone              becomes a tombstone               left out

Truncates are left out. Records whose value is no change event, such as heartbeats, stay as they are.
Source: io.debezium.transforms.ExtractNewRecordState and its documentation, "New Record State Extraction".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.arrow_fields import OPTIONAL
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE
from barnabas.spark.connectors.events.errors import EventError

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

DELETED: Final = "__deleted"
_STRUCTS: Final = ("before", "after", "source", "transaction")
_DELETE: Final = "d"
_TRUNCATE: Final = "t"


class DeleteHandling(StrEnum):
    """delete.tombstone.handling.mode."""

    TOMBSTONE = "tombstone"
    DROP = "drop"
    REWRITE = "rewrite"
    REWRITE_WITH_TOMBSTONE = "rewrite-with-tombstone"
    DELETE_TO_TOMBSTONE = "delete-to-tombstone"


class AddedField(Struct, frozen=True):
    """A field of the envelope that the flat record keeps: where it is, and its new name."""

    struct: str | None
    field: str
    name: str


class UnwrapOptions(Struct, frozen=True):
    """The options of the transform. `route_by_field` names a field of the row that has the topic."""

    deletes: DeleteHandling = DeleteHandling.TOMBSTONE
    fields: tuple[AddedField, ...] = ()
    headers: tuple[AddedField, ...] = ()
    route_by_field: str | None = None


def added_fields(parts: Sequence[str], prefix: str) -> tuple[AddedField, ...]:
    """`op`, `source.ts_ms` or `source.ts_ms:name` as fields; without a name, dots become underscores.

    A field without a struct is one of the envelope if the envelope has it, else of the source block.
    """
    found = []
    for part in parts:
        path, _, name = part.partition(":")
        struct, dot, field = path.strip().rpartition(".")
        new = name.strip() or path.strip().replace(".", "_")
        found.append(AddedField(struct if dot else None, field, f"{prefix}{new}"))
    return tuple(found)


def is_envelope(field: Any) -> bool:
    """Whether the values of a column (its Arrow field) are change events."""
    return bool(
        pa.types.is_struct(field.type)
        and all(field.type.get_field_index(name) >= 0 for name in ("before", "after", "source", "op"))
    )


def unwrap(batch: Any, options: UnwrapOptions) -> Any:
    """The records with flat values. Raises EventError if a field that is to be added is not in the events."""
    place = batch.schema.get_field_index("value")
    field = batch.schema.field(place)
    if not is_envelope(field):
        return _without_tombstones(batch, options) if pa.types.is_null(field.type) else batch
    truncates = _pc.fill_null(_pc.equal(batch.column(place).field("op"), _TRUNCATE), False)
    if _pc.any(truncates).as_py():
        batch = batch.filter(_pc.invert(truncates))
        if not batch.num_rows:
            return batch
    value = batch.column(place)
    there = value.is_valid().to_numpy(zero_copy_only=False)
    op = value.field("op")
    deleted = _pc.fill_null(_pc.equal(op, _DELETE), False).to_numpy(zero_copy_only=False) & there
    rewrites = options.deletes in (DeleteHandling.REWRITE, DeleteHandling.REWRITE_WITH_TOMBSTONE)
    row = value.field("after")
    if rewrites and deleted.any():
        row = _pc.if_else(pa.array(deleted), value.field("before"), row)
    new_field, new = _flat(field, value, row, there, deleted, rewrites, options)
    columns = list(batch.columns)
    columns[place] = new
    schema = batch.schema.set(place, new_field)
    _replace(columns, schema, "headers", lambda old: _with_headers(old, value, there, options))
    if options.route_by_field is not None:
        routed = _row_field(row, options.route_by_field).cast(pa.string())
        _replace(columns, schema, "topic", lambda old: _pc.coalesce(routed, old))
    flat = pa.RecordBatch.from_arrays(columns, schema=schema)
    keep = _kept(there, deleted, options.deletes)
    return flat if keep.all() else flat.filter(pa.array(keep))


def _without_tombstones(batch: Any, options: UnwrapOptions) -> Any:
    keep = _kept(np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_), options.deletes)
    return batch if keep.all() else batch.filter(pa.array(keep))


def _kept(there: Any, deleted: Any, deletes: DeleteHandling) -> Any:
    match deletes:
        case DeleteHandling.TOMBSTONE:
            return ~deleted
        case DeleteHandling.DROP:
            return there & ~deleted
        case DeleteHandling.REWRITE | DeleteHandling.DELETE_TO_TOMBSTONE:
            return there
        case DeleteHandling.REWRITE_WITH_TOMBSTONE:
            return np.ones(len(there), np.bool_)


def _flat(
    field: Any, value: Any, row: Any, there: Any, deleted: Any, rewrites: bool, options: UnwrapOptions
) -> tuple[Any, Any]:
    """(the field of the flat values, the flat values), null for tombstones."""
    after = field.type.field("after")
    fields = list(after.type)
    arrays = [row.field(index) for index in range(row.type.num_fields)]
    if rewrites:
        fields.append(pa.field(DELETED, pa.string()))
        arrays.append(_pc.if_else(pa.array(deleted), "true", "false"))
    for added in options.fields:
        source, column = _envelope_field(value, added)
        fields.append(source.with_name(added.name).with_nullable(True))
        arrays.append(column)
    mask = row.is_null().to_numpy(zero_copy_only=False) | ~there
    kept = {name: text for name, text in (field.metadata or {}).items() if name == OPTIONAL}
    metadata = {**(after.metadata or {}), **kept}
    new_field = pa.field(field.name, pa.struct(fields), True, metadata)
    return new_field, pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(mask))


def _envelope_field(value: Any, added: AddedField) -> tuple[Any, Any]:
    """(the Arrow field, the column) of a field of the envelope or of one of its structs."""
    struct = added.struct
    if struct is None and value.type.get_field_index(added.field) < 0:
        struct = "source"
    if struct is None:
        return value.type.field(added.field), value.field(added.field)
    if struct not in _STRUCTS or value.type.field(struct).type.get_field_index(added.field) < 0:
        raise EventError(
            f"change events have no field {struct}.{added.field}, which add.fields or add.headers names: their fields"
            f" are {', '.join(value.type.field('source').type.names)} of source, and op, ts_ms, transaction.id"
        )
    return value.type.field(struct).type.field(added.field), _pc.struct_field(value, [struct, added.field])


def _row_field(row: Any, name: str) -> Any:
    if row.type.get_field_index(name) < 0:
        raise EventError(
            f"the rows have no field {name}, which route.by.field names: their fields are {row.type.names}"
        )
    return _pc.struct_field(row, name)


def _replace(columns: list[Any], schema: Any, name: str, change: Any) -> None:
    place = schema.get_field_index(name)
    columns[place] = change(columns[place])


def _with_headers(old: Any, value: Any, there: Any, options: UnwrapOptions) -> Any:
    """The headers of each record, and after them those of add.headers, which tombstones do not have."""
    if not options.headers:
        return old
    texts = []
    for added in options.headers:
        _, column = _envelope_field(value, added)
        texts.append((added.name, column.cast(pa.string()).cast(pa.binary()).to_pylist()))
    rows = [
        (before or []) + [{"key": name, "value": values[row]} for name, values in texts] if there[row] else before
        for row, before in enumerate(old.to_pylist())
    ]
    return pa.array(rows, HEADERS_TYPE)
