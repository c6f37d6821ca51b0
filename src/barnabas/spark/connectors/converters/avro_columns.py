"""Codec: Arrow columns of Connect's values <-> columns of what Avro writes: numbers, bytes, lists of entries.

`avro_program` of the schema registry's columns encodes and decodes whole columns of such values. Decimals are bytes,
dates and times integers, int8 and int16 are int32, and a map without texts as keys is a list of structs.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute
from msgspec import structs

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.arrow_fields import arrow_type, in_form_of
from barnabas.spark.connectors.connect_schemas import DECIMAL_NAME, ConnectSchema, ConnectType
from barnabas.spark.connectors.converters.avro_schemas import DEFAULT_AVRO_FORM, UNION, AvroForm, has_text_keys
from barnabas.spark.connectors.converters.byte_texts import decimal_bytes, decimals_of_bytes
from barnabas.spark.connectors.converters.errors import ConverterDataError
from barnabas.spark.connectors.converters.json_values import value_of_json

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time


def avro_column(column: Any, schema: ConnectSchema, form: AvroForm = DEFAULT_AVRO_FORM, parents: Any = None) -> Any:
    """A column as Avro writes it. A null becomes the default of its schema, unless the form keeps nulls.

    `parents` says (Arrow, bool) in which rows all structs around the column are there; None: in all. Raises
    ConverterDataError for a null in a required field.
    """
    schema = _without_union(schema)
    if schema.type not in (ConnectType.STRUCT, ConnectType.ARRAY, ConnectType.MAP):
        column = in_form_of(column, schema)
    elif pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif pa.types.is_fixed_size_list(column.type) or pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    if column.null_count:
        column = _with_defaults(column, schema, form)
        _check_nulls(column, schema, parents)
    match schema.type:
        case ConnectType.STRUCT:
            inside = column.is_valid() if column.null_count else None
            if inside is not None and parents is not None:
                inside = _pc.and_(inside, parents)
            inside = parents if inside is None else inside
            parts = [
                avro_column(column.field(index), part.schema, form, inside) for index, part in enumerate(schema.fields)
            ]
            fields = [pa.field(part.name, made.type) for part, made in zip(schema.fields, parts, strict=True)]
            return _struct(parts, fields, column)
        case ConnectType.ARRAY:
            assert schema.items is not None
            offsets, first, count = offsets_of(column)
            values = avro_column(column.values.slice(first, count), schema.items, form)
            return _list(offsets, values, pa.list_(values.type), column)
        case ConnectType.MAP:
            return _avro_map(column, schema, form)
        case ConnectType.BYTES if schema.name == DECIMAL_NAME:
            return decimal_bytes(column)
        case ConnectType.INT8 | ConnectType.INT16 | ConnectType.INT32:
            return column.cast(pa.int32())
        case ConnectType.INT64:
            return column.cast(pa.int64())
        case _:
            return column


def _avro_map(column: Any, schema: ConnectSchema, form: AvroForm) -> Any:
    assert schema.keys is not None
    assert schema.items is not None
    offsets, first, count = offsets_of(column)
    keys = avro_column(column.keys.slice(first, count), schema.keys, form)
    items = avro_column(column.items.slice(first, count), schema.items, form)
    if has_text_keys(schema, form):
        if keys.null_count:
            raise ConverterDataError("a key of a map is null, and keys in Avro are texts: leave the entry out")
        kind = pa.map_(keys.type, items.type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    else:
        entries = pa.StructArray.from_arrays(
            [keys, items], fields=[pa.field("key", keys.type), pa.field("value", items.type)]
        )
        kind = pa.list_(entries.type)
    return _list(offsets, entries, kind, column)


def connect_column(column: Any, schema: ConnectSchema) -> Any:
    """A column that was read from Avro in the Arrow type of its schema. Raises ValueError for a value that this type
    cannot hold.
    """
    kind = arrow_type(schema)
    match schema.type:
        case ConnectType.STRUCT:
            parts = [connect_column(column.field(index), part.schema) for index, part in enumerate(schema.fields)]
            return _struct(parts, list(kind), column)
        case ConnectType.ARRAY:
            assert schema.items is not None
            offsets, first, count = offsets_of(column)
            return _list(offsets, connect_column(column.values.slice(first, count), schema.items), kind, column)
        case ConnectType.MAP:
            assert schema.keys is not None
            assert schema.items is not None
            offsets, first, count = offsets_of(column)
            if pa.types.is_map(column.type):
                keys, items = column.keys.slice(first, count), column.items.slice(first, count)
            else:
                entries = column.values.slice(first, count)
                keys, items = entries.field("key"), entries.field("value")
            parts = [connect_column(keys, schema.keys), connect_column(items, schema.items)]
            return _list(
                offsets, pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field]), kind, column
            )
        case ConnectType.BYTES if schema.name == DECIMAL_NAME:
            return decimals_of_bytes(column.cast(pa.binary()), kind)
        case _:
            return column if column.type.equals(kind) else column.cast(kind)


def offsets_of(column: Any) -> tuple[Any, int, int]:
    """(the offsets of a list or map column from 0 on (Arrow, int32), the first element, the number of elements)."""
    offsets = column.offsets.cast(pa.int32())
    first = offsets[0].as_py()
    count = offsets[len(column)].as_py() - first
    return (_pc.subtract(offsets, first) if first else offsets), first, count


def _list(offsets: Any, values: Any, kind: Any, column: Any) -> Any:
    """A list or map column from its offsets, which begin at 0, with the nulls of another column."""
    bits = None
    if column.null_count:
        bits = column.is_valid().buffers()[1]
    buffer = offsets.buffers()[1].slice(offsets.offset * 4, len(offsets) * 4)
    return pa.Array.from_buffers(kind, len(column), [bits, buffer], children=[values])


def _struct(parts: list[Any], fields: list[Any], column: Any) -> Any:
    if not parts:
        nulls = column.is_null().to_pylist()
        return pa.array([None if null else {} for null in nulls], pa.struct([]))
    return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null() if column.null_count else None)


def _without_union(schema: ConnectSchema) -> ConnectSchema:
    """The schema with the fields of a union optional, since one of them has a value."""
    if schema.name != UNION:
        return schema
    fields = tuple(structs.replace(part, schema=part.schema.as_optional()) for part in schema.fields)
    return structs.replace(schema, fields=fields)


def _with_defaults(column: Any, schema: ConnectSchema, form: AvroForm) -> Any:
    if schema.default is None or (schema.optional and form.keeps_nulls):
        return column
    value = value_of_json(schema.default, schema)
    return _pc.if_else(column.is_valid(), column, pa.scalar(value, column.type))


def _check_nulls(column: Any, schema: ConnectSchema, parents: Any) -> None:
    if schema.optional or not column.null_count:
        return
    wrong = column.is_null() if parents is None else _pc.and_(column.is_null(), parents)
    if _pc.any(wrong).as_py():
        raise ConverterDataError(
            f"row {_pc.index(wrong, True).as_py()} has a null in a field of type {schema.type.value} that is required"
            " and has no default: make the field nullable, or exclude such records"
        )
