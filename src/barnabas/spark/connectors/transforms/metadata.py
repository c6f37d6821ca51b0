"""Machine: the transforms between a record's parts: InsertField, SetSchemaMetadata, ValueToKey.

Source: the classes of these names in org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute
from msgspec import Struct

from barnabas.spark.connectors.transforms.errors import TransformConfigError, TransformDataError, TransformPlanError
from barnabas.spark.connectors.transforms.records import (
    SCHEMA_NAME,
    SCHEMA_VERSION,
    Logical,
    Part,
    build_struct,
    child,
    children,
    decode_objects,
    is_schemaless,
    json_column,
    json_field,
    null_error,
    null_rows,
    object_or_null,
    part_field,
    refuse_nulls,
    replace_column,
    require_struct,
    stored_field,
    struct_of,
)
from barnabas.spark.connectors.transforms.settings import Settings, Transform
from barnabas.spark.connectors.transforms.texts import milliseconds

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time


class Insertion(Struct, frozen=True):
    """A field to insert: from a column of the batch, or the static value."""

    name: str
    optional: bool
    source: str


def build_insert_field(settings: Settings, part: Part) -> Transform:
    """InsertField: the topic, partition, offset or timestamp of the record, or a constant, as fields.

    Null keys and values stay null.
    """
    inserted = [
        Insertion(
            text.removesuffix("?") if text.endswith("?") else text.removesuffix("!"), not text.endswith("!"), source
        )
        for source in ("topic", "partition", "offset", "timestamp", "static")
        if (text := settings.optional(f"{source}.field")) is not None
    ]
    constant = settings.optional("static.value")
    if not inserted:
        raise TransformConfigError(
            f"{settings.prefix}topic.field, .partition.field, .offset.field, .timestamp.field or .static.field must be "
            "given: InsertField inserts nothing else"
        )

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        columns = [_inserted(batch, each, constant) for each in inserted]
        if is_schemaless(field):
            rows = [object_or_null(row, part, "InsertField") for row in decode_objects(column, field)]
            for each, (_, cells) in zip(inserted, columns, strict=True):
                for row, cell in zip(rows, cells.to_pylist(), strict=True):
                    if cell is not None and row is not None:
                        row[each.name] = cell
            return json_column(batch, field, rows)
        if column.null_count == len(column):
            return batch
        require_struct(field, "InsertField")
        fields = [*field.type, *(new for new, _ in columns)]
        new = struct_of(field, fields, "InsertField", optional=False)
        arrays = [*children(column), *(cells for _, cells in columns)]
        return replace_column(batch, new, build_struct(arrays, new.type, column))

    return apply


def _inserted(batch: Any, each: Insertion, constant: str | None) -> tuple[Any, Any]:
    """The field and the column to insert. Timestamps are int64 milliseconds."""
    rows = batch.num_rows
    if each.source == "static":
        array = pa.array([constant], pa.string()).take(pa.array([0] * rows, pa.int64()))
        return pa.field(each.name, pa.string(), each.optional), array
    index = batch.schema.get_field_index(each.source)
    if each.source == "offset" and index < 0:
        raise TransformPlanError(
            "InsertField can insert the offset only into records that were read from a topic; remove offset.field"
        )
    type_ = {"topic": pa.string(), "partition": pa.int32()}.get(each.source, pa.int64())
    array = pa.nulls(rows, type_) if index < 0 else batch.column(index)
    if each.source == "timestamp":
        array = milliseconds(array) if pa.types.is_timestamp(array.type) else array
        field = stored_field(each.name, Logical.TIMESTAMP, each.optional)
    else:
        field = pa.field(each.name, type_, each.optional)
    if not each.optional and array.null_count:
        raise TransformDataError(f"InsertField cannot insert the required field {each.name}: the {each.source} is null")
    return field, array.cast(field.type)


def build_set_schema_metadata(settings: Settings, part: Part) -> Transform:
    """SetSchemaMetadata: the name or the version of the schema."""
    name, version = settings.optional("schema.name"), settings.integer("schema.version")
    if name is None and version is None:
        raise TransformConfigError(f"{settings.prefix}schema.name or {settings.prefix}schema.version must be given")

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            if _pc.all(null_rows(batch, part)).as_py() in (None, True):
                return batch
            raise TransformDataError(
                f"SetSchemaMetadata needs a schema, but the {part} has none; set {part}.converter to one with schemas"
            )
        metadata = dict(field.metadata or {})
        if name is not None:
            metadata[SCHEMA_NAME] = name.encode()
        if version is not None:
            metadata[SCHEMA_VERSION] = str(version).encode()
        return replace_column(batch, field.with_metadata(metadata), column)

    return apply


def build_value_to_key(settings: Settings) -> Transform:
    """ValueToKey: fields of the value as the key."""
    names = settings.list("fields")

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, "value"), batch.column("value")
        if is_schemaless(field):
            found = [object_or_null(row, "value", "ValueToKey") for row in decode_objects(column, field)]
            if None in found:
                raise null_error("value", "ValueToKey")
            keys = [{name: row.get(name) for name in names} for row in found if row is not None]
            return json_column(batch, json_field("key"), keys)
        refuse_nulls(column, "value", "ValueToKey")
        require_struct(field, "ValueToKey")
        fields, cells = [], children(column)
        for name in names:
            inner = child(field, name)
            if inner is None:
                raise TransformPlanError(
                    f"ValueToKey finds no field {name!r} in the value; its fields are "
                    f"{', '.join(each.name for each in field.type)}"
                )
            fields.append(inner)
        key = struct_of(pa.field("key", pa.struct([]), nullable=False), fields, "ValueToKey")
        arrays = [cells[field.type.get_field_index(name)] for name in names]
        return replace_column(batch, key, build_struct(arrays, key.type, column))

    return apply
