"""Table: the columns of tables as fields of events.

    Arrow                 Connect, by the options                                      Debezium's name
    bool, int8 .. int64   boolean, int8 .. int64
    unsigned integers     the next wider one; uint64 as decimal128(20, 0)
    float, double         float, double
    decimal128            precise: bytes; double: double; string: string               Decimal (Connect's)
    text NUMERIC          precise: struct of scale and bytes; double; string           VariableScaleDecimal
    date32                int32, days                                                  Date
    time64                int64 us; ADAPTIVE and at most 3 digits: int32 ms            MicroTime; Time
    TIME                  int64 us: 838 hours in milliseconds are more than an int32   MicroTime
    timestamp             int64 us; ADAPTIVE and at most 3 digits: int64 ms            MicroTimestamp; Timestamp
    timestamp with zone   string in UTC                                                ZonedTimestamp
    string                string                                                       Json, Xml, Uuid, Enum, EnumSet
    binary                bytes, or text by binary.handling.mode; BITS                 Bits
    list                  array
    map                   string with a JSON object                                    Json

Intervals, ranges, addresses and other types that PostgreSQL gives as text stay text without a name.
Source: Debezium's documentation of its connectors for PostgreSQL and MySQL, "Data type mappings".
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.connect_schemas import DECIMAL_NAME, ConnectSchema, ConnectType, struct_schema
from barnabas.spark.connectors.events.changes import ColumnSchema, Meaning
from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.options import BinaryHandling, DecimalHandling, EventOptions, TimePrecision

_TIME: Final = "io.debezium.time."
_DATA: Final = "io.debezium.data."
_CONNECT: Final = "org.apache.kafka.connect.data."

_TEXT_NAMES: Final = {
    Meaning.JSON: "Json",
    Meaning.XML: "Xml",
    Meaning.UUID: "Uuid",
    Meaning.ENUM: "Enum",
    Meaning.SET: "EnumSet",
}

VARIABLE_SCALE_DECIMAL: Final = struct_schema(
    _DATA + "VariableScaleDecimal",
    {"scale": ConnectSchema(ConnectType.INT32), "value": ConnectSchema(ConnectType.BYTES)},
    version=1,
)


def field_schema(column: ColumnSchema, options: EventOptions) -> ConnectSchema:
    """The schema of a column's field. Raises EventError for an Arrow type that no source gives."""
    schema = _required(column.type, column, options)
    return schema.as_optional() if column.nullable else schema


def _named(kind: ConnectType, name: str, **parameters: str) -> ConnectSchema:
    return ConnectSchema(kind, name=name, version=1, parameters=parameters)


def _required(kind: Any, column: ColumnSchema, options: EventOptions) -> ConnectSchema:
    types = pa.types
    if column.meaning is Meaning.TIME or types.is_time(kind):
        return _time(column, options)
    if types.is_timestamp(kind):
        return _timestamp(kind, column, options)
    if types.is_date(kind):
        name = _CONNECT + "Date" if options.times is TimePrecision.CONNECT else _TIME + "Date"
        return _named(ConnectType.INT32, name)
    if types.is_decimal128(kind) or types.is_uint64(kind):
        return _decimal(kind, options)
    if types.is_string(kind) or types.is_large_string(kind):
        return _text(column, options)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _binary(column, options)
    if types.is_map(kind):
        return _named(ConnectType.STRING, _DATA + "Json")
    if types.is_list(kind) or types.is_large_list(kind):
        items = _required(kind.value_type, element_of(column), options)
        return ConnectSchema(ConnectType.ARRAY, items=items.as_optional())
    return _plain(kind, column)


def element_of(column: ColumnSchema) -> ColumnSchema:
    """The elements of a list as a column."""
    return ColumnSchema(column.name, column.type.value_type, True, column.meaning, column.length, column.digits)


_PLAIN: Final = (
    (pa.bool_(), ConnectType.BOOLEAN),
    (pa.int8(), ConnectType.INT8),
    (pa.uint8(), ConnectType.INT16),
    (pa.int16(), ConnectType.INT16),
    (pa.uint16(), ConnectType.INT32),
    (pa.int32(), ConnectType.INT32),
    (pa.uint32(), ConnectType.INT64),
    (pa.int64(), ConnectType.INT64),
    (pa.float32(), ConnectType.FLOAT32),
    (pa.float64(), ConnectType.FLOAT64),
)


def _plain(kind: Any, column: ColumnSchema) -> ConnectSchema:
    for arrow, connect in _PLAIN:
        if kind.equals(arrow):
            if column.meaning is Meaning.YEAR:
                return _named(ConnectType.INT32, _TIME + "Year")
            return ConnectSchema(connect)
    raise EventError(f"the column {column.name} has the type {kind}, which events have no form for: exclude the column")


def _keeps_milliseconds(column: ColumnSchema) -> bool:
    return column.digits is not None and column.digits <= 3


def _time(column: ColumnSchema, options: EventOptions) -> ConnectSchema:
    match options.times:
        case TimePrecision.CONNECT:
            return _named(ConnectType.INT32, _CONNECT + "Time")
        case TimePrecision.NANOSECONDS:
            return _named(ConnectType.INT64, _TIME + "NanoTime")
        case TimePrecision.ADAPTIVE if _keeps_milliseconds(column) and column.meaning is not Meaning.TIME:
            return _named(ConnectType.INT32, _TIME + "Time")
        case _:
            return _named(ConnectType.INT64, _TIME + "MicroTime")


def _timestamp(kind: Any, column: ColumnSchema, options: EventOptions) -> ConnectSchema:
    if kind.tz is not None:
        return _named(ConnectType.STRING, _TIME + "ZonedTimestamp")
    match options.times:
        case TimePrecision.CONNECT:
            return _named(ConnectType.INT64, _CONNECT + "Timestamp")
        case TimePrecision.NANOSECONDS:
            return _named(ConnectType.INT64, _TIME + "NanoTimestamp")
        case TimePrecision.ADAPTIVE | TimePrecision.ADAPTIVE_TIME_MICROSECONDS if _keeps_milliseconds(column):
            return _named(ConnectType.INT64, _TIME + "Timestamp")
        case _:
            return _named(ConnectType.INT64, _TIME + "MicroTimestamp")


def _decimal(kind: Any, options: EventOptions) -> ConnectSchema:
    is_unsigned = pa.types.is_uint64(kind)
    precision, scale = (20, 0) if is_unsigned else (kind.precision, kind.scale)
    match (is_unsigned and options.unsigned) or options.decimals:
        case DecimalHandling.PRECISE:
            parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
            return ConnectSchema(ConnectType.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)
        case DecimalHandling.DOUBLE:
            return ConnectSchema(ConnectType.FLOAT64)
        case DecimalHandling.STRING:
            return ConnectSchema(ConnectType.STRING)


def _text(column: ColumnSchema, options: EventOptions) -> ConnectSchema:
    match column.meaning:
        case Meaning.NUMERIC:
            match options.decimals:
                case DecimalHandling.PRECISE:
                    return VARIABLE_SCALE_DECIMAL
                case DecimalHandling.DOUBLE:
                    return ConnectSchema(ConnectType.FLOAT64)
                case DecimalHandling.STRING:
                    return ConnectSchema(ConnectType.STRING)
        case Meaning.ZONED_TIME:
            return _named(ConnectType.STRING, _TIME + "ZonedTime")
        case Meaning.ENUM | Meaning.SET:
            allowed = ",".join(column.allowed)
            return _named(ConnectType.STRING, _DATA + _TEXT_NAMES[column.meaning], allowed=allowed)
        case Meaning.JSON | Meaning.XML | Meaning.UUID:
            return _named(ConnectType.STRING, _DATA + _TEXT_NAMES[column.meaning])
        case _:
            return ConnectSchema(ConnectType.STRING)


def _binary(column: ColumnSchema, options: EventOptions) -> ConnectSchema:
    if column.meaning is Meaning.BITS:
        return _named(ConnectType.BYTES, _DATA + "Bits", length=str(column.length))
    if options.binaries is BinaryHandling.BYTES:
        return ConnectSchema(ConnectType.BYTES)
    return ConnectSchema(ConnectType.STRING)
