"""Codec: Arrow types as Spark types, and columns in exactly the Arrow type that Spark expects.

Spark has no unsigned integers and no fixed-size binary, and timestamps in microseconds only. A time of day becomes the
number that it is in Avro, as with Spark's `from_avro`.

    uint8, uint16, uint32, uint64   smallint, int, bigint, decimal(20,0)
    timestamp(any, zone)            timestamp         timestamp(any)          timestamp_ntz
    time32(ms), time64(us)          int, bigint       null                    string
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_SCALARS = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_REPLACED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}
_DECIMAL_DIGITS_MAX = 38


def spark_arrow(kind: Any) -> Any:
    """The Arrow type that a column of type `kind` has in Spark. Raises ValueError if Spark has no such type."""
    if kind in _SCALARS:
        return kind
    if kind in _REPLACED:
        return _REPLACED[kind]
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, spark_arrow(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", spark_arrow(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(spark_arrow(kind.key_type), spark_arrow(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS_MAX:
        return pa.decimal128(kind.precision, kind.scale)
    raise ValueError(f"Spark has no type for {kind}")


def spark_ddl(kind: Any) -> str:
    """The Spark type of a column, in the language of DDL. Raises ValueError if Spark has no such type."""
    kind = spark_arrow(kind)
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {spark_ddl(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_ddl(kind.key_type)}, {spark_ddl(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SCALARS[kind]


def conform(column: Any, target: Any) -> Any:
    """The column in the type `target`: fields by name, missing fields null, other fields left out. Raises
    ArrowInvalid or ArrowNotImplementedError if the values do not fit.
    """
    kind = column.type
    if kind == target:
        return column
    if pa.types.is_null(kind):
        return pa.nulls(len(column), target)
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        return _conform_struct(column, target)
    if pa.types.is_list(kind) and pa.types.is_list(target):
        return _conform_list(column, target)
    if pa.types.is_map(kind) and pa.types.is_map(target):
        return _conform_map(column, target)
    if pa.types.is_time(kind) and pa.types.is_integer(target):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(target)
    if pa.types.is_timestamp(kind):
        return column.cast(target, safe=False)  # nanoseconds are cut off
    return column.cast(target)


def _conform_struct(column: Any, target: Any) -> Any:
    names = {field.name for field in column.type}
    children = [
        conform(column.field(field.name), field.type) if field.name in names else pa.nulls(len(column), field.type)
        for field in target
    ]
    mask = column.is_null() if column.null_count else None
    if not children:
        return column.cast(target)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _conform_list(column: Any, target: Any) -> Any:
    values = conform(column.values, target.value_type)
    return pa.Array.from_buffers(
        target, len(column), column.buffers()[:2], column.null_count, column.offset, children=[values]
    )


def _conform_map(column: Any, target: Any) -> Any:
    entries = pa.StructArray.from_arrays(
        [conform(column.keys, target.key_type), conform(column.items, target.item_type)],
        fields=[target.key_field, target.item_field],
    )
    return pa.Array.from_buffers(
        target, len(column), column.buffers()[:2], column.null_count, column.offset, children=[entries]
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
