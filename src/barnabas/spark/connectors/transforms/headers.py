"""Machine: the transforms of headers: DropHeaders, HeaderFrom, InsertHeader.

Headers are bytes here: the texts that Connect's SimpleHeaderConverter writes.
Source: the classes of these names in org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barnabas.spark.connectors.transforms.errors import TransformConfigError, TransformPlanError
from barnabas.spark.connectors.transforms.records import (
    Part,
    append_headers,
    build_struct,
    children,
    decode_objects,
    drop_headers,
    is_schemaless,
    json_column,
    logical_column,
    part_field,
    refuse_nulls,
    replace_column,
    require_object,
    require_struct,
    struct_of,
)
from barnabas.spark.connectors.transforms.settings import Settings, Transform
from barnabas.spark.connectors.transforms.texts import column_texts, json_text


def build_drop_headers(settings: Settings) -> Transform:
    """DropHeaders: records without the headers of some names."""
    names = settings.list("headers")
    return lambda batch: drop_headers(batch, names)


def build_insert_header(settings: Settings) -> Transform:
    """InsertHeader: one more header, the same for all records."""
    name, literal = settings.text("header"), settings.text("value.literal").encode()

    def apply(batch: Any) -> Any:
        return append_headers(batch, [name], [pa.array([literal] * batch.num_rows, pa.binary())])

    return apply


def build_header_from(settings: Settings, part: Part) -> Transform:
    """HeaderFrom: fields as headers. `operation=move` removes the fields from the key or value."""
    names, headers = settings.list("fields"), settings.list("headers")
    if len(names) != len(headers):
        raise TransformConfigError(
            f"{settings.prefix}headers must have as many names as {settings.prefix}fields, {len(names)}; found "
            f"{len(headers)}"
        )
    move = settings.text("operation") == "move"

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            rows = [require_object(row, part, "HeaderFrom") for row in decode_objects(column, field)]
            values = [pa.array([json_text(row.get(name)) for row in rows], pa.binary()) for name in names]
            if move:
                batch = json_column(batch, field, [{n: row[n] for n in row if n not in names} for row in rows])
            return append_headers(batch, headers, values)
        refuse_nulls(column, part, "HeaderFrom")
        require_struct(field, "HeaderFrom")
        arrays = children(column)
        values = [column_texts(_cells(field, arrays, name)).cast(pa.binary()) for name in names]
        if move:
            kept = [(f, array) for f, array in zip(field.type, arrays, strict=True) if f.name not in names]
            new = struct_of(field, [f for f, _ in kept], "HeaderFrom", optional=False)
            batch = replace_column(batch, new, build_struct([array for _, array in kept], new.type, column))
        return append_headers(batch, headers, values)

    return apply


def _cells(field: Any, arrays: list[Any], name: str) -> Any:
    index = field.type.get_field_index(name)
    if index < 0:
        raise TransformPlanError(
            f"HeaderFrom finds no field {name!r} in the {field.name}; its fields are "
            f"{', '.join(each.name for each in field.type)}"
        )
    return logical_column(arrays[index], field.type.field(index))
