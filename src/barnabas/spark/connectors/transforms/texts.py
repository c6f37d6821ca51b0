"""Codec: a column of any type -> a column of texts, as Connect writes values of that type.

Integers are decimal, booleans `true` or `false`, floats as Java's `Double.toString`, binary as base64, dates, times and
timestamps in ISO 8601 with milliseconds. Source: `org.apache.kafka.connect.data.Values` and `transforms.Cast`. One
difference: Connect guesses from a `java.util.Date` whether it is a date, a time or a timestamp (midnight is printed as
a date, everything before 2 January 1970 as a time); here the type of the column decides.
"""

from __future__ import annotations

import binascii
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute

from barnabas.spark.connectors.json_schemas import float_text
from barnabas.spark.connectors.transforms.date_patterns import ISO_TIME, ISO_TIMESTAMP, format_ms

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time


def java_float_text(value: float, single: bool = False) -> str:
    """A float as Java prints it, without the quotation marks that NaN and the infinities have in JSON."""
    return float_text(value, single=single).strip('"')


def is_texts(type_: Any) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_bytes(type_: Any) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_))


def is_nested(type_: Any) -> bool:
    return bool(pa.types.is_nested(type_))


def column_texts(array: Any) -> Any:
    """A string column with the text of each cell; nulls stay null. Structs, lists and maps become JSON."""
    type_ = array.type
    if is_texts(type_):
        return array.cast(pa.string())
    if pa.types.is_floating(type_):
        single = bool(pa.types.is_float32(type_))
        texts = [None if cell is None else java_float_text(cell, single) for cell in array.to_pylist()]
        return pa.array(texts, pa.string())
    if is_bytes(type_):
        cells = array.to_pylist()
        return pa.array(
            [None if c is None else binascii.b2a_base64(c, newline=False).decode() for c in cells], pa.string()
        )
    if pa.types.is_date(type_):
        return _pc.strftime(array.cast(pa.timestamp("s")), format="%Y-%m-%d")
    if pa.types.is_time(type_):
        return format_ms(milliseconds(array), ISO_TIME)
    if pa.types.is_timestamp(type_):
        return format_ms(milliseconds(array), ISO_TIMESTAMP)
    if is_nested(type_):
        rows = [None if row is None else _plain(row, type_) for row in array.to_pylist()]
        return pa.array([None if row is None else msgspec.json.encode(row).decode() for row in rows], pa.string())
    return array.cast(pa.string())


def _plain(value: Any, type_: Any) -> Any:
    """A nested Python value with objects in place of the pairs that Arrow gives for maps."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {str(key): _plain(item, type_.item_type) for key, item in value}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_plain(item, type_.value_type) for item in value]
    return value


def milliseconds(array: Any) -> Any:
    """A column of timestamps, dates or times as int64 milliseconds since 1970 (times: since midnight)."""
    if pa.types.is_date(array.type):
        return array.cast(pa.timestamp("ms")).cast(pa.int64())
    if pa.types.is_time(array.type):
        return array.cast(pa.time32("ms"), safe=False).cast(pa.int32()).cast(pa.int64())
    return array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False).cast(pa.int64())


def json_text(value: Any) -> bytes | None:
    """The text of one value without a schema, as Connect's SimpleHeaderConverter writes it."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return java_float_text(value).encode()
    return msgspec.json.encode(value)
