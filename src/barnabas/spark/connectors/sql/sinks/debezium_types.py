"""Codec: fields of Debezium's events, which have their meaning in the name of the schema -> columns of Arrow's types.

    io.debezium.time.Date                              int32 days           date32
    io.debezium.time.Time, MicroTime, NanoTime         int32, int64         time, or text from 24 hours on (MySQL)
    io.debezium.time.Timestamp, Micro.., Nano..        int64                timestamp without a zone
    io.debezium.time.ZonedTimestamp                    text                 timestamp with a zone
    io.debezium.data.Json                              text                 JSON
    io.debezium.data.VariableScaleDecimal              scale and bytes      text
    io.debezium.data.Bits                              bytes, low first     text of digits, or bytes (MySQL)

Connect's own logical types are Arrow's types already. Source: Debezium's documentation, "Data type mappings".
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.arrow_fields import NAME, PARAMETERS
from barnabas.spark.connectors.converters.byte_texts import reversed_bytes
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.transforms.records import json_field

_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_PREFIX: Final = b"io.debezium."


def meant(field: Any, array: Any, dialect: Dialect) -> tuple[Any, Any]:
    """The field and the column as what Debezium means by them; other fields as they are."""
    name: bytes = (field.metadata or {}).get(NAME, b"")
    if pa.types.is_list(array.type):
        return _list(field, array, dialect)
    if not name.startswith(_PREFIX):
        return field, array
    known = _TYPES.get(name[len(_PREFIX) :].decode())
    if known is None:
        return field, array
    try:
        found = known(field, array, dialect)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a transform has changed the type, and not the name
        return field, array
    if name.endswith(b".Json"):
        return json_field(field.name).with_nullable(field.nullable), found
    return pa.field(field.name, found.type, field.nullable), found


def _list(field: Any, array: Any, dialect: Dialect) -> tuple[Any, Any]:
    """A list as a list of what Debezium means by its elements."""
    _, found = meant(array.type.value_field, array.flatten(), dialect)
    if found.type.equals(array.type.value_type):
        return field, array
    kind = pa.list_(pa.field("element", found.type))
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    mask = array.is_null() if array.null_count else None
    return field.with_type(kind), pa.ListArray.from_arrays(offsets, found, type=kind, mask=mask)


def _date(field: Any, array: Any, dialect: Dialect) -> Any:
    return array.cast(pa.int32()).cast(pa.date32())


def _time(unit: str) -> Callable[[Any, Any, Dialect], Any]:
    def convert(field: Any, array: Any, dialect: Dialect) -> Any:
        numbers = array.cast(pa.int64())
        # 24:00:00 is a time of PostgreSQL and of Debezium.
        if pc.all(pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, _DAY[unit]))).as_py() is not False:
            return _milliseconds(numbers) if unit == "ms" else numbers.view(pa.time64(unit))
        second = _DAY[unit] // 86_400
        return pa.array([None if one is None else _clock(one, second) for one in numbers.to_pylist()], pa.string())

    return convert


def _milliseconds(numbers: Any) -> Any:
    return numbers.cast(pa.int32()).view(pa.time32("ms"))


def _clock(number: int, second: int) -> str:
    """A time of MySQL, which may be negative or longer than a day."""
    seconds, fraction = divmod(abs(number), second)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{'-' if number < 0 else ''}{text}.{fraction * 1_000_000 // second:06d}"


def _timestamp(unit: str) -> Callable[[Any, Any, Dialect], Any]:
    return lambda field, array, dialect: array.cast(pa.int64()).cast(pa.timestamp(unit))


def _zoned(field: Any, array: Any, dialect: Dialect) -> Any:
    try:
        return array.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return array.cast(pa.timestamp("ns", "UTC"))


def _json(field: Any, array: Any, dialect: Dialect) -> Any:
    return array.cast(pa.string())


def _decimal(field: Any, array: Any, dialect: Dialect) -> Any:
    def text(value: Any) -> str | None:
        if value is None:
            return None
        return format(Decimal(f"{int.from_bytes(value['value'], 'big', signed=True)}e{-value['scale']}"), "f")

    if not pa.types.is_struct(array.type):
        return array
    return pa.array([text(value) for value in array.to_pylist()], pa.string())


def _bits(field: Any, array: Any, dialect: Dialect) -> Any:
    if dialect is Dialect.MYSQL:
        return reversed_bytes(array).cast(pa.binary())
    parameters = msgspec.json.decode((field.metadata or {}).get(PARAMETERS, b"{}"), type=dict[str, str])
    length = int(parameters.get("length", "0") or 0)

    def text(value: bytes) -> str:
        digits = format(int.from_bytes(value, "little"), "b")
        return digits.zfill(length)[-length:] if 0 < length < 1 << 20 else digits

    return pa.array([None if one is None else text(one) for one in array.to_pylist()], pa.string())


_TYPES: Final[dict[str, Callable[[Any, Any, Dialect], Any]]] = {
    "time.Date": _date,
    "time.Time": _time("ms"),
    "time.MicroTime": _time("us"),
    "time.NanoTime": _time("ns"),
    "time.Timestamp": _timestamp("ms"),
    "time.MicroTimestamp": _timestamp("us"),
    "time.NanoTimestamp": _timestamp("ns"),
    "time.ZonedTimestamp": _zoned,
    "data.Json": _json,
    "data.VariableScaleDecimal": _decimal,
    "data.Bits": _bits,
}
