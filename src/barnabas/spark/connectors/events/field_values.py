"""Codec: the values of a table's column -> the form that its field in events has (`field_types.py`).

A null in a column that does not allow null becomes the type's zero: an old row may have only its key, and a zero date
of MySQL is null. Debezium does the same.
"""

from __future__ import annotations

import decimal
from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.arrow_fields import arrow_type
from barnabas.spark.connectors.connect_schemas import DECIMAL_NAME, ConnectSchema, ConnectType
from barnabas.spark.connectors.converters.byte_texts import base64_texts, hexadecimal_texts, reversed_bytes
from barnabas.spark.connectors.converters.json_texts import escaped_texts
from barnabas.spark.connectors.events.changes import ColumnSchema, Meaning
from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.field_types import VARIABLE_SCALE_DECIMAL, element_of
from barnabas.spark.connectors.events.options import BinaryHandling, EventOptions
from barnabas.spark.connectors.events.zoned_texts import zoned_texts

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_SHOWN: Final = 60
_ZEROS: Final = {
    ConnectType.BOOLEAN: False,
    ConnectType.FLOAT32: 0.0,
    ConnectType.FLOAT64: 0.0,
    ConnectType.STRING: "",
    ConnectType.BYTES: b"",
}


def field_values(values: Any, column: ColumnSchema, schema: ConnectSchema, options: EventOptions) -> Any:
    """A column as an Arrow array of `arrow_type(schema)`. Raises EventError for a value that the form cannot hold."""
    kind = arrow_type(schema)
    try:
        result = _in_form(values, column, schema, options)
    except (pa.ArrowInvalid, decimal.InvalidOperation) as error:
        value = str(_first_without_form(values, column, schema, options))
        shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
        option = "decimal.handling.mode" if _is_number(values.type, column) else "time.precision.mode"
        raise EventError(
            f"the value {shown} of the column {column.name} ({column.type}) has no form in events ({error}): choose"
            f" another {option}, or exclude the column"
        ) from error
    if result.null_count and not schema.optional:
        return _pc.if_else(result.is_valid(), result, _zero(schema, kind))
    return result


def _in_form(values: Any, column: ColumnSchema, schema: ConnectSchema, options: EventOptions) -> Any:
    kind = arrow_type(schema)
    result = _convert(values, column, schema, options)
    if not result.type.equals(kind):
        result = (result.cast(pa.int32()) if pa.types.is_time32(kind) else result).cast(kind)
    if column.meaning is Meaning.NUMERIC and pa.types.is_floating(kind):
        texts = values.filter(_pc.fill_null(_pc.is_inf(result), False))
        if _pc.any(_pc.invert(_pc.match_substring(texts, "Infinity"))).as_py():
            raise pa.ArrowInvalid("no double is so large")
    return result


def _first_without_form(values: Any, column: ColumnSchema, schema: ConnectSchema, options: EventOptions) -> Any:
    """The first value that fails. Halves of the column are tried."""
    while len(values) > 1:
        half = len(values) // 2
        try:
            _in_form(values.slice(0, half), column, schema, options)
            values = values.slice(half)
        except (pa.ArrowInvalid, decimal.InvalidOperation):
            values = values.slice(0, half)
    return values[0].as_py()


def _is_number(kind: Any, column: ColumnSchema) -> bool:
    return pa.types.is_decimal(kind) or pa.types.is_uint64(kind) or column.meaning is Meaning.NUMERIC


def fill_unavailable(values: Any, missing: Any, schema: ConnectSchema, options: EventOptions) -> Any:
    """Put the placeholder where `missing` (numpy, bool) is true. Values of a type without one stay null."""
    placeholder = unavailable_placeholder(schema, options)
    if placeholder is None:
        return values
    return _pc.if_else(pa.array(missing), pa.scalar(placeholder, values.type), values)


def has_placeholder(values: Any, options: EventOptions) -> Any:
    """In which rows (numpy, bool) a column of an event has the text of the placeholder, as a value or in place of one;
    None if in no row.
    """
    kind, text = values.type, options.unavailable_value
    if pa.types.is_list(kind):
        flat = has_placeholder(values.flatten(), options)
        if flat is None:
            return None
        found = np.zeros(len(values), np.bool_)
        found[_pc.list_parent_indices(values).to_numpy()[flat]] = True
        return found
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    raw = text.encode()
    lengths = _pc.fill_null(_pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(lengths == len(raw))  # few, and a comparison of lengths is all that most columns cost
    wanted = pa.array([raw if pa.types.is_binary(kind) else text], kind)
    mask = np.zeros(len(values), np.bool_)
    mask[places] = _pc.is_in(values.take(pa.array(places)), value_set=wanted).to_numpy(zero_copy_only=False)
    return mask if mask.any() else None


def unavailable_placeholder(schema: ConnectSchema, options: EventOptions) -> str | bytes | list[str] | None:
    """The placeholder for a value that the server did not send: a text, bytes, or a list with the text. None for other
    types, in which any placeholder could be a real value.
    """
    text = options.unavailable_value
    match schema.type:
        case ConnectType.STRING:
            return text
        case ConnectType.BYTES if schema.name is None:
            return text.encode()
        case ConnectType.ARRAY if schema.items is not None and schema.items.type is ConnectType.STRING:
            return [text]
        case _:
            return None


def _zero(schema: ConnectSchema, kind: Any) -> Any:
    if schema.type is ConnectType.STRUCT:
        return pa.scalar({"scale": 0, "value": b"\0"}, kind)
    if schema.type is ConnectType.ARRAY:
        return pa.scalar([], kind)
    if schema.name == DECIMAL_NAME:
        return pa.scalar(decimal.Decimal(0), kind)
    if schema.name == "io.debezium.time.ZonedTimestamp":
        return pa.scalar("1970-01-01T00:00:00Z", kind)
    return pa.scalar(_ZEROS.get(schema.type, 0), kind)


def _convert(values: Any, column: ColumnSchema, schema: ConnectSchema, options: EventOptions) -> Any:
    types = pa.types
    kind = values.type
    if types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if column.meaning is Meaning.TIME or types.is_time(kind):
        return _scaled(values.cast(pa.time64("us")) if types.is_time32(kind) else values, 1, schema)
    if types.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", kind.tz))
        return zoned_texts(micros, column.digits) if kind.tz is not None else _scaled(micros, 1, schema)
    if types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32())
    if types.is_uint64(kind):
        values = values.cast(pa.decimal128(20, 0))
        kind = values.type
    if types.is_decimal128(kind):
        return values
    if column.meaning is Meaning.NUMERIC and schema == (
        VARIABLE_SCALE_DECIMAL.as_optional() if schema.optional else VARIABLE_SCALE_DECIMAL
    ):
        return _variable_scale(values, arrow_type(schema), column)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _binary(values, column, options)
    if types.is_map(kind):
        return _objects(values)
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(values, column, schema, options)
    return values


def _scaled(values: Any, unit: int, schema: ConnectSchema) -> Any:
    """Microseconds in the unit that the schema's name says; parts of a unit are cut off towards the past."""
    micros = values.cast(pa.int64())
    name = (schema.name or "").rpartition(".")[2]
    if name.startswith("Nano"):
        return _pc.multiply_checked(micros, 1000)
    if name.startswith("Micro"):
        return micros
    numbers = _pc.fill_null(micros, 0).to_numpy(zero_copy_only=False)
    mask = None if not micros.null_count else micros.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(numbers, 1000), pa.int64(), mask=mask)


def _variable_scale(values: Any, kind: Any, column: ColumnSchema) -> Any:
    """Numbers of any size from text. Python's integers have the bytes, one value at a time."""
    wrong = values.filter(_pc.is_in(values, value_set=pa.array(["NaN", "Infinity", "-Infinity"])))
    if len(wrong):
        raise EventError(
            f"the value {wrong[0].as_py()} of the column {column.name} is no decimal: set nan.handling.mode=null, or"
            " text for all numeric columns; or decimal.handling.mode=double or string; or exclude the column"
        )
    return pa.array([None if text is None else _scale_and_bytes(text) for text in values.to_pylist()], kind)


def _scale_and_bytes(text: str) -> dict[str, Any]:
    number = decimal.Decimal(text)
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise decimal.InvalidOperation(f"{text} is not a number")
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if exponent > 0:
        unscaled, exponent = unscaled * 10**exponent, 0
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return {"scale": -exponent, "value": unscaled.to_bytes(length, "big", signed=True)}


def _binary(values: Any, column: ColumnSchema, options: EventOptions) -> Any:
    if column.meaning is Meaning.BITS:
        return reversed_bytes(values)
    match options.binaries:
        case BinaryHandling.BYTES:
            return values
        case BinaryHandling.BASE64:
            return base64_texts(values)
        case BinaryHandling.BASE64_URL_SAFE:
            return base64_texts(values, url_safe=True)
        case BinaryHandling.HEX:
            return hexadecimal_texts(values)


def _objects(values: Any) -> Any:
    """JSON objects of maps from text to text."""
    start = values.offsets[0].as_py()
    count = values.offsets[len(values)].as_py() - start
    items = _pc.fill_null(_quoted(values.items.slice(start, count)), "null")
    pairs = _pc.binary_join_element_wise(_quoted(values.keys.slice(start, count)), items, ":")
    offsets = _pc.subtract(values.offsets, start)
    lists = pa.ListArray.from_arrays(offsets, pairs)
    texts = _pc.binary_join_element_wise("{", _pc.binary_join(lists, ","), "}", "")
    return _pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string())) if values.null_count else texts


def _quoted(texts: Any) -> Any:
    return _pc.binary_join_element_wise('"', escaped_texts(texts).cast(pa.string()), '"', "")


def _lists(values: Any, column: ColumnSchema, schema: ConnectSchema, options: EventOptions) -> Any:
    assert schema.items is not None
    elements = field_values(values.flatten(), element_of(column), schema.items, options)
    lengths = _pc.fill_null(_pc.list_value_length(values), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))).astype(np.int32)
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=arrow_type(schema), mask=mask)
