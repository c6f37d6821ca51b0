"""Codec: JSON values with a Connect schema -> Arrow columns.

Arrow's JSON parser reads a column at once: the values become one text of objects, `{"":[value]}{"":[value]}..`, whose
lists have one item each unless a text is more than one value. Bytes and decimals are read as text, and base64 becomes
bytes by one call. Values that this parser does not take (numbers in place of decimals, NaN, maps, and everything that
does not fit the schema) are read one by one, which finds the bad row.
Source: org.apache.kafka.connect.json.JsonConverter (toConnectData).
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow.compute
import pyarrow.json

from barnabas.client.columns.byte_column import ByteColumn, np, pa
from barnabas.spark.connectors.arrow_fields import arrow_type
from barnabas.spark.connectors.connect_schemas import (
    DATE_NAME,
    DECIMAL_NAME,
    DECIMAL_SCALE,
    TIME_NAME,
    TIMESTAMP_NAME,
    ConnectSchema,
    ConnectType,
)
from barnabas.spark.connectors.converters.byte_kernels import write_slices
from barnabas.spark.connectors.converters.byte_texts import bytes_of_base64, decimals_of_bytes
from barnabas.spark.connectors.converters.runs import BadRows

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_OPENING: Final = np.frombuffer(b'{"":[', np.uint8)
_CLOSING: Final = np.frombuffer(b"]}", np.uint8)
_DECODER: Final = msgspec.json.Decoder(float_hook=decimal.Decimal)
_BITS: Final = {ConnectType.INT8: 8, ConnectType.INT16: 16, ConnectType.INT32: 32, ConnectType.INT64: 64}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class _ValueError(ValueError):
    """A value does not fit its schema."""


def json_column(
    texts: ByteColumn, rows: Any, schema: ConnectSchema, bad: BadRows, *, defaults: bool = True
) -> tuple[Any, Any]:
    """(the rows that are good, their values as an Arrow column) for JSON texts, of which null ones are null rows.

    `rows` are the numbers of the texts in their batch, under which bad ones are recorded. `defaults` is the converter's
    option replace.null.with.default.
    """
    kind = arrow_type(schema)
    present = np.flatnonzero(texts.length >= 0)
    if not len(present):
        return rows, pa.nulls(len(rows), kind)
    if _has_columns(schema):
        try:
            parsed = _parse(texts.take(present), schema)
            column = _logical(parsed, schema, None, defaults)
            return rows, spread(column, present, len(rows), kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            pass  # read one by one below, which finds the rows
    return _one_by_one(texts, rows, schema, bad, defaults)


def _one_by_one(texts: ByteColumn, rows: Any, schema: ConnectSchema, bad: BadRows, defaults: bool) -> tuple[Any, Any]:
    kind = arrow_type(schema)
    values: list[Any] = []
    good: list[int] = []
    data = memoryview(texts.data)
    for at, size, row in zip(texts.at.tolist(), texts.length.tolist(), rows.tolist(), strict=True):
        try:
            value = None if size < 0 else _value(_DECODER.decode(data[at : at + size]), schema, defaults)
        except (ValueError, OverflowError, RecursionError) as error:
            bad.add(row, error)
            continue
        values.append(value)
        good.append(row)
    return fitting_values(values, good, kind, bad)


def fitting_values(values: list[Any], rows: list[int], kind: Any, bad: BadRows) -> tuple[Any, Any]:
    """(the rows, their values as a column of a type). Rows whose value Arrow refuses, such as a decimal with too many
    digits, are bad.
    """
    try:
        return np.array(rows, np.int64), pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass  # one by one, to find the rows
    kept: list[Any] = []
    good: list[int] = []
    for value, row in zip(values, rows, strict=True):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            bad.add(row, error)
            continue
        kept.append(value)
        good.append(row)
    return np.array(good, np.int64), pa.array(kept, kind)


def spread(column: Any, present: Any, rows: int, kind: Any) -> Any:
    """A column of `rows` rows with these values at the rows `present` (numpy), and nulls elsewhere."""
    if len(present) == rows:
        return column
    index = np.full(rows, -1, np.int64)
    index[present] = np.arange(len(present))
    return column.take(pa.array(index, mask=index < 0))


def _has_columns(schema: ConnectSchema) -> bool:
    """Whether Arrow's parser has a type for the values."""
    if schema.type is ConnectType.MAP:
        return False
    if schema.type is ConnectType.ARRAY:
        assert schema.items is not None
        return _has_columns(schema.items)
    names = [part.name for part in schema.fields]
    return len(set(names)) == len(names) and all(_has_columns(part.schema) for part in schema.fields)


def _read_type(schema: ConnectSchema) -> Any:
    match schema.type:
        case ConnectType.STRUCT:
            return pa.struct([pa.field(part.name, _read_type(part.schema)) for part in schema.fields])
        case ConnectType.ARRAY:
            assert schema.items is not None
            return pa.list_(pa.field("element", _read_type(schema.items)))
        case ConnectType.BYTES:
            return pa.string()
        case ConnectType.INT32 | ConnectType.INT64:
            return pa.int32() if schema.type is ConnectType.INT32 else pa.int64()
        case _:
            return arrow_type(schema)


def _parse(texts: ByteColumn, schema: ConnectSchema) -> Any:
    length = texts.length.astype(np.int64)
    whole = length + len(_OPENING) + len(_CLOSING)
    starts = np.cumsum(whole) - length - len(_CLOSING)
    text = np.empty(int(whole.sum()), np.uint8)
    for place, byte in enumerate(_OPENING.tolist()):
        text[starts - len(_OPENING) + place] = byte
    for place, byte in enumerate(_CLOSING.tolist()):
        text[starts + length + place] = byte
    write_slices(texts.data, texts.at, texts.length, starts, text)
    table = pyarrow.json.read_json(
        pa.BufferReader(pa.py_buffer(text)),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("", pa.list_(_read_type(schema)))]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(texts) or table.num_columns != 1:
        raise pa.ArrowInvalid("a text is not exactly one value")
    lists = table.column(0).combine_chunks()
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    column = lists.flatten()
    if lists.null_count or len(column) != len(texts) or not _pc.all(_pc.equal(_pc.list_value_length(lists), 1)).as_py():
        raise pa.ArrowInvalid("a text is not exactly one value")
    column.validate(full=True)  # the parser does not check that strings are UTF-8
    return column


def _logical(column: Any, schema: ConnectSchema, parents: Any, defaults: bool) -> Any:
    """A parsed column in the Arrow type of its schema. Raises ValueError for a null in a required field."""
    if column.null_count and not (defaults and schema.default is not None) and not schema.optional:
        wrong = column.is_null() if parents is None else _pc.and_(column.is_null(), parents)
        if _pc.any(wrong).as_py():
            raise _ValueError("a required field is null")
    kind = arrow_type(schema)
    match schema.type:
        case ConnectType.STRUCT:
            inside = column.is_valid() if parents is None else _pc.and_(parents, column.is_valid())
            inside = inside if column.null_count or parents is not None else None
            parts = [
                _logical(column.field(index), part.schema, inside, defaults) for index, part in enumerate(schema.fields)
            ]
            found = _struct(parts, kind, column)
        case ConnectType.ARRAY:
            assert schema.items is not None
            first = column.offsets[0].as_py()
            count = column.offsets[len(column)].as_py() - first
            elements = _logical(column.values.slice(first, count), schema.items, None, defaults)
            offsets = _pc.subtract(column.offsets, first)
            found = pa.ListArray.from_arrays(
                offsets, elements, type=kind, mask=column.is_null() if column.null_count else None
            )
        case ConnectType.BYTES:
            raw = bytes_of_base64(column)
            found = decimals_of_bytes(raw, kind) if schema.name == DECIMAL_NAME else raw.cast(pa.binary())
        case _:
            found = column if column.type.equals(kind) else column.cast(kind)
    if column.null_count and defaults and schema.default is not None:
        return _pc.if_else(column.is_valid(), found, pa.scalar(_value(schema.default, schema, defaults), kind))
    return found


def _struct(parts: list[Any], kind: Any, column: Any) -> Any:
    mask = column.is_null() if column.null_count else None
    if not parts:
        return pa.array([None if null else {} for null in column.is_null().to_pylist()], kind)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)


def value_of_json(value: Any, schema: ConnectSchema) -> Any:
    """A JSON value, such as a default of a schema, as the Python value that Arrow takes for the schema. Raises
    ValueError.
    """
    return _value(value, schema, True)


def _value(value: Any, schema: ConnectSchema, defaults: bool) -> Any:
    """One decoded JSON value as the Python value that Arrow takes for the schema. Raises _ValueError."""
    if value is None:
        if defaults and schema.default is not None:
            return _value(schema.default, schema, False)
        if schema.optional:
            return None
        raise _ValueError(f"a required field of type {schema.type.value} is null")
    match schema.type:
        case ConnectType.STRUCT:
            found: Mapping[str, Any] = _of(value, dict, schema)
            return {part.name: _value(found.get(part.name), part.schema, defaults) for part in schema.fields}
        case ConnectType.ARRAY:
            assert schema.items is not None
            return [_value(one, schema.items, defaults) for one in _of(value, list, schema)]
        case ConnectType.MAP:
            return _map(value, schema, defaults)
        case ConnectType.STRING:
            return _of(value, str, schema)
        case ConnectType.BOOLEAN:
            return _of(value, bool, schema)
        case ConnectType.BYTES:
            return _bytes(value, schema)
        case ConnectType.FLOAT32 | ConnectType.FLOAT64:
            return _float(value, schema)
        case _:
            return _integer(value, schema)


def _of(value: Any, kind: Any, schema: ConnectSchema) -> Any:
    if not isinstance(value, kind):
        raise _ValueError(f"{_shown(value)} is not of the type {schema.type.value}")
    return value


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _map(value: Any, schema: ConnectSchema, defaults: bool) -> list[tuple[Any, Any]]:
    assert schema.keys is not None
    assert schema.items is not None
    if schema.keys.type is ConnectType.STRING:
        return [(key, _value(item, schema.items, defaults)) for key, item in _of(value, dict, schema).items()]
    pairs = []
    for pair in _of(value, list, schema):
        if not isinstance(pair, list) or len(pair) != 2:
            raise _ValueError(f"{_shown(pair)} is no pair of a key and a value of a map")
        pairs.append((_value(pair[0], schema.keys, defaults), _value(pair[1], schema.items, defaults)))
    return pairs


def _bytes(value: Any, schema: ConnectSchema) -> Any:
    is_decimal = schema.name == DECIMAL_NAME
    if is_decimal and isinstance(value, int | decimal.Decimal) and not isinstance(value, bool):
        return decimal.Decimal(value)
    try:
        raw = base64.b64decode(_of(value, str, schema), validate=True)
    except binascii.Error as error:
        raise _ValueError(f"{_shown(value)} is not base64: {error}") from None
    if not is_decimal:
        return raw
    with decimal.localcontext(prec=100):
        return decimal.Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-int(schema.parameters[DECIMAL_SCALE]))


def _float(value: Any, schema: ConnectSchema) -> float:
    if isinstance(value, int | decimal.Decimal) and not isinstance(value, bool):
        return float(value)
    if value in ("NaN", "Infinity", "-Infinity"):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[value]
    raise _ValueError(f"{_shown(value)} is not of the type {schema.type.value}")


def _integer(value: Any, schema: ConnectSchema) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _ValueError(f"{_shown(value)} is not of the type {schema.type.value}")
    if not -(1 << _BITS[schema.type] - 1) <= value < 1 << _BITS[schema.type] - 1:
        raise _ValueError(f"{value} is out of the range of {schema.type.value}")
    match schema.name:
        case _ if schema.name == DATE_NAME and schema.type is ConnectType.INT32:
            return _EPOCH.date() + datetime.timedelta(days=value)
        case _ if schema.name == TIME_NAME and schema.type is ConnectType.INT32:
            return (_EPOCH + datetime.timedelta(milliseconds=value)).time()
        case _ if schema.name == TIMESTAMP_NAME and schema.type is ConnectType.INT64:
            return _EPOCH + datetime.timedelta(milliseconds=value)
        case _:
            return value
