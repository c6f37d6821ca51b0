"""Machine: change events made flat, as Debezium's ExtractNewRecordState does: the value becomes the row.

    delete.tombstone.handling.mode   a delete event                    its tombstone
    tombstone (default)              becomes a tombstone               left out
    drop                             left out                          left out
    rewrite                          the old row, __deleted = true     left out
    rewrite-with-tombstone           the old row, __deleted = true     stays
    delete-to-tombstone              becomes a tombstone               left out
    (of older versions)              left out                          stays

Truncates are left out. A value is a change event if its schema has a name that ends with `.Envelope`, as Debezium
decides; or, if there is no schema or the schema has no name, if it has the fields `before`, `after` and `op`. Other
records, such as heartbeats, stay as they are, and records without a value are taken for the tombstones of deletes.
Debezium leaves events without a schema as they are.
Source: io.debezium.transforms.ExtractNewRecordState and its documentation, "New Record State Extraction".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.arrow_fields import NAME, OPTIONAL
from barnabas.spark.connectors.converters.runs import is_json
from barnabas.spark.connectors.events.added_fields import AddedField
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE
from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.json_events import JsonEvent, as_text, json_events

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

DELETED: Final = "__deleted"
_ENVELOPE: Final = b".Envelope"
_PLACES: Final = {"op": None, "ts_ms": None, "ts_us": None, "ts_ns": None} | dict.fromkeys(
    ("id", "total_order", "data_collection_order"), "transaction"
)
"""Where a field without a struct is; all others are in the source block."""
_DELETE: Final = "d"
_TRUNCATE: Final = "t"


class DeleteHandling(StrEnum):
    """delete.tombstone.handling.mode. TOMBSTONE and DELETE_TO_TOMBSTONE are the same here."""

    TOMBSTONE = "tombstone"
    DROP = "drop"
    REWRITE = "rewrite"
    REWRITE_WITH_TOMBSTONE = "rewrite-with-tombstone"
    DELETE_TO_TOMBSTONE = "delete-to-tombstone"
    KEEP_TOMBSTONE = "keep-tombstone"
    """What drop.tombstones=false without delete.handling.mode meant; not a value of the option."""


class UnwrapOptions(Struct, frozen=True):
    """The options of the transform. `route_by_field` names a field of the row that has the topic."""

    deletes: DeleteHandling = DeleteHandling.TOMBSTONE
    fields: tuple[AddedField, ...] = ()
    headers: tuple[AddedField, ...] = ()
    route_by_field: str | None = None


def added_fields(parts: Sequence[str], prefix: str) -> tuple[AddedField, ...]:
    """`op`, `source.ts_ms` or `source.ts_ms:name` as fields; without a name, dots become underscores.

    Without a struct, `op` and the times are those of the envelope; `id`, `total_order` and `data_collection_order`
    those of the transaction; all others those of the source block.
    """
    found = []
    for part in parts:
        path, _, name = part.partition(":")
        struct, dot, field = path.strip().rpartition(".")
        new = name.strip() or path.strip().replace(".", "_")
        found.append(AddedField(struct if dot else _PLACES.get(field, "source"), field, f"{prefix}{new}"))
    return tuple(found)


def is_envelope(field: Any) -> bool:
    """Whether the values of a column (its Arrow field) are change events."""
    if not pa.types.is_struct(field.type):
        return False
    name = (field.metadata or {}).get(NAME)
    if name is not None and not name.endswith(_ENVELOPE):
        return False
    return all(field.type.get_field_index(part) >= 0 for part in ("before", "after", "op"))


def unwrap(batch: Any, options: UnwrapOptions) -> Any:
    """The records with flat values. Raises EventError if a field that is to be added is not in the events."""
    place = batch.schema.get_field_index("value")
    field = batch.schema.field(place)
    if is_json(field) and pa.types.is_string(field.type):
        return _unwrap_json(batch, place, options)
    if not is_envelope(field):
        return _handle_tombstones(batch, batch.column(place).is_null(), options)
    truncates = _pc.fill_null(_pc.equal(batch.column(place).field("op"), _TRUNCATE), False)
    if _pc.any(truncates).as_py():
        batch = batch.filter(_pc.invert(truncates))
        if not batch.num_rows:
            return batch
    value = batch.column(place)
    there = value.is_valid().to_numpy(zero_copy_only=False)
    op = value.field("op")
    deleted = _pc.fill_null(_pc.equal(op, _DELETE), False).to_numpy(zero_copy_only=False) & there
    rewrites = _rewrites(options)
    row = value.field("after")
    if rewrites and deleted.any():
        row = _pc.if_else(pa.array(deleted), value.field("before"), row)
    new_field, new = _flat(field, value, row, there, deleted, rewrites, options)
    columns = list(batch.columns)
    columns[place] = new
    schema = batch.schema.set(place, new_field)
    _replace(columns, schema, "headers", lambda old: _with_headers(old, value, there, options))
    if options.route_by_field is not None:
        routed = _routes(value, there, deleted, options.route_by_field)
        _replace(columns, schema, "topic", lambda old: _pc.coalesce(routed, old))
    flat = pa.RecordBatch.from_arrays(columns, schema=schema)
    keep = _kept(there, deleted, options.deletes)
    return flat if keep.all() else flat.filter(pa.array(keep))


def _unwrap_json(batch: Any, place: int, options: UnwrapOptions) -> Any:
    """The same for values without a schema. Values that are no change events stay as they are."""
    events = json_events(batch.column(place).to_pylist())
    if not any(events):
        return _handle_tombstones(batch, batch.column(place).is_null(), options)
    stays = [row for row, event in enumerate(events) if event is None or event.op != _TRUNCATE]
    if len(stays) < len(events):
        batch, events = batch.take(pa.array(stays, pa.int64())), [events[row] for row in stays]
    there = batch.column(place).is_valid().to_numpy(zero_copy_only=False)
    deleted = np.array([event is not None and event.op == _DELETE for event in events], np.bool_)
    columns, schema = list(batch.columns), batch.schema
    columns[place] = pa.array(
        [
            text if event is None else event.flat(options.fields, DELETED if _rewrites(options) else None)
            for text, event in zip(columns[place].to_pylist(), events, strict=True)
        ],
        columns[place].type,
    )
    if options.headers:
        removed = _removed_headers(options)
        rows = zip(batch.column("headers").to_pylist(), events, there, strict=True)
        headers = [
            (before or []) + (_json_headers(event, options) if event is not None else [] if is_there else removed)
            for before, event, is_there in rows
        ]
        _replace(columns, schema, "headers", lambda _: pa.array(headers, HEADERS_TYPE))
    if options.route_by_field is not None:
        routes = [None if event is None else event.route(options.route_by_field) for event in events]
        _replace(columns, schema, "topic", lambda old: _pc.coalesce(pa.array(routes, pa.string()), old))
    flat = pa.RecordBatch.from_arrays(columns, schema=schema)
    return flat.filter(pa.array(_kept(there, deleted, options.deletes)))


def _json_headers(event: JsonEvent, options: UnwrapOptions) -> list[dict[str, Any]]:
    texts = ((one.name, as_text(event.field(one.struct, one.field))) for one in options.headers)
    return [{"key": name, "value": None if text is None else text.encode()} for name, text in texts]


def _rewrites(options: UnwrapOptions) -> bool:
    return options.deletes in (DeleteHandling.REWRITE, DeleteHandling.REWRITE_WITH_TOMBSTONE)


def _handle_tombstones(batch: Any, tombstone: Any, options: UnwrapOptions) -> Any:
    """Records that are no events: what becomes of those without a value."""
    if not _pc.any(tombstone).as_py():
        return batch
    there = ~tombstone.to_numpy(zero_copy_only=False)
    if removed := _removed_headers(options):
        columns, place = list(batch.columns), batch.schema.get_field_index("headers")
        rows = zip(columns[place].to_pylist(), there, strict=True)
        columns[place] = pa.array(
            [before if stays else (before or []) + removed for before, stays in rows], HEADERS_TYPE
        )
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    keep = _kept(there, np.zeros(len(there), np.bool_), options.deletes)
    return batch if keep.all() else batch.filter(pa.array(keep))


def _removed_headers(options: UnwrapOptions) -> list[dict[str, Any]]:
    """The headers of a tombstone: the operation, if add.headers has it."""
    return [{"key": one.name, "value": _DELETE.encode()} for one in options.headers if one.field == "op"]


def _kept(there: Any, deleted: Any, deletes: DeleteHandling) -> Any:
    match deletes:
        case DeleteHandling.KEEP_TOMBSTONE:
            return ~deleted
        case DeleteHandling.DROP:
            return there & ~deleted
        case DeleteHandling.REWRITE | DeleteHandling.TOMBSTONE | DeleteHandling.DELETE_TO_TOMBSTONE:
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
    new_field = pa.field(field.name, pa.struct(fields), field.nullable, metadata)
    return new_field, pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(mask))


def _envelope_field(value: Any, added: AddedField) -> tuple[Any, Any]:
    """(the Arrow field, the column) of a field of one of the envelope's structs, or else of the envelope itself."""
    within = -1 if added.struct is None else value.type.get_field_index(added.struct)
    kind = value.type.field(within).type if within >= 0 else pa.null()
    if pa.types.is_struct(kind) and kind.get_field_index(added.field) >= 0:
        return kind.field(added.field), _pc.struct_field(value, [added.struct, added.field])
    if value.type.get_field_index(added.field) >= 0:
        return value.type.field(added.field), value.field(added.field)
    name = added.field if added.struct is None else f"{added.struct}.{added.field}"
    known = [
        f"{part.name}.{inner.name}" if pa.types.is_struct(part.type) else part.name
        for part in value.type
        if part.name not in ("before", "after")
        for inner in (part.type if pa.types.is_struct(part.type) else [part])
    ]
    raise EventError(
        f"change events have no field {name}, which add.fields or add.headers names: they have {', '.join(known)}"
    )


def _routes(value: Any, there: Any, deleted: Any, name: str) -> Any:
    """The texts of a field of the rows, of the old row where a row is deleted; null for tombstones and empty texts."""
    old, new = value.field("before"), value.field("after")
    if new.type.get_field_index(name) < 0:
        raise EventError(
            f"the rows have no field {name}, which route.by.field names: their fields are {new.type.names}"
        )
    after = _pc.struct_field(new, name)
    texts = _pc.if_else(pa.array(deleted), _pc.struct_field(old, name), after).cast(pa.string())
    is_named = _pc.and_(pa.array(there), _pc.fill_null(_pc.not_equal(_pc.utf8_trim_whitespace(texts), ""), False))
    return _pc.if_else(is_named, texts, pa.scalar(None, pa.string()))


def _replace(columns: list[Any], schema: Any, name: str, change: Any) -> None:
    place = schema.get_field_index(name)
    columns[place] = change(columns[place])


def _with_headers(old: Any, value: Any, there: Any, options: UnwrapOptions) -> Any:
    """The headers of each record, and after them those of add.headers; of these, tombstones have the operation only."""
    if not options.headers:
        return old
    removed = _removed_headers(options)
    texts = []
    for added in options.headers:
        _, column = _envelope_field(value, added)
        texts.append((added.name, column.cast(pa.string()).cast(pa.binary()).to_pylist()))
    rows = [
        (before or []) + ([{"key": name, "value": values[row]} for name, values in texts] if there[row] else removed)
        for row, before in enumerate(old.to_pylist())
    ]
    return pa.array(rows, HEADERS_TYPE)
