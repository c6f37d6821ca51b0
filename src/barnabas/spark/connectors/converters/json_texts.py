"""Codec: Arrow columns with a Connect schema -> JSON, with the bytes that JsonConverter writes.

    struct  {"a":..,"b":null}, a field that is null is there     bytes   base64
    int64   digits                                              double  as Java prints it, NaN and infinities quoted
    map     {"key":..}, or [[key,value],..] if keys are not text decimal base64 of the unscaled value, or a number

A row is a sequence of pieces: texts that are the same in all rows, and columns of texts. A struct without nulls adds
its pieces to those of its parent, so that one call of Arrow's join makes the texts of all rows. A column whose values
are all equal is one text; in change events, most of the source block is.
Source: org.apache.kafka.connect.json.JsonConverter, JsonConverterConfig (decimal.format, replace.null.with.default).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.compute
from msgspec import Struct

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.arrow_fields import in_form_of
from barnabas.spark.connectors.connect_schemas import DECIMAL_NAME, ConnectSchema, ConnectType
from barnabas.spark.connectors.converters.byte_texts import base64_texts, decimal_bytes
from barnabas.spark.connectors.converters.errors import ConverterDataError
from barnabas.spark.connectors.json_schemas import compact_json, escaped, float_text

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_TEXT: Final = pa.large_string()
_BEYOND_BMP: Final = "[\U00010000-\U0010ffff]"
_FOUR_BYTES: Final = 0xF0


class JsonForm(Struct, frozen=True):
    """The options of JsonConverter that change values: `decimal.format`, `replace.null.with.default`."""

    numeric_decimals: bool = False
    replace_null_with_default: bool = True


DEFAULT_FORM: Final = JsonForm()


def json_texts(column: Any, schema: ConnectSchema, form: JsonForm = DEFAULT_FORM) -> Any:
    """The JSON text of each row (Arrow large strings); a null row is `null`, or the schema's default.

    Raises ConverterDataError for a null in a required field without a default.
    """
    return _joined(_pieces(column, schema, form, None), len(column))


def json_pieces(column: Any, schema: ConnectSchema, form: JsonForm = DEFAULT_FORM) -> list[Any]:
    """The texts (str) and columns of texts that, joined row by row, are the JSON texts of the rows."""
    return _pieces(column, schema, form, None)


def _pieces(column: Any, schema: ConnectSchema, form: JsonForm, parents: Any) -> list[Any]:
    """`parents` says (Arrow, bool) in which rows all structs around the column are there; None: in all."""
    rows = len(column)
    if not rows:
        return [""]
    nulls = column.null_count
    if nulls:
        _check_nulls(column, schema, form, parents)
        if nulls == rows:
            return [_null_text(schema, form)]
    if schema.type is ConnectType.STRUCT:
        if not nulls:
            return _struct(column, schema, form, parents)
        inside = column.is_valid() if parents is None else _pc.and_(parents, column.is_valid())
        return [_with_nulls(_joined(_struct(column, schema, form, inside), rows), column, schema, form)]
    column = in_form_of(column, schema)
    if not nulls and rows > 1 and _is_constant(column, schema):
        return ["".join(_text_of(one) for one in _values(column.slice(0, 1), schema, form))]
    pieces = _values(column, schema, form)
    return [_with_nulls(_joined(pieces, rows), column, schema, form)] if nulls else pieces


def _text_of(piece: Any) -> str:
    return piece if isinstance(piece, str) else piece[0].as_py()


def _is_constant(column: Any, schema: ConnectSchema) -> bool:
    if schema.type in (ConnectType.ARRAY, ConnectType.MAP):
        return False
    first = column[0]
    return first.equals(column[-1]) and bool(_pc.all(_pc.equal(column, first)).as_py())


def _null_text(schema: ConnectSchema, form: JsonForm) -> str:
    if schema.default is not None and form.replace_null_with_default:
        return compact_json(schema.default)
    return "null"


def _check_nulls(column: Any, schema: ConnectSchema, form: JsonForm, parents: Any) -> None:
    if schema.optional or (schema.default is not None and form.replace_null_with_default):
        return
    wrong = column.is_null() if parents is None else _pc.and_(column.is_null(), parents)
    if _pc.any(wrong).as_py():
        row = _pc.index(wrong, True).as_py()
        raise ConverterDataError(
            f"row {row} has a null in a field of type {schema.type.value} that is required and has no default: make "
            "the field nullable, or exclude such records"
        )


def _with_nulls(texts: Any, column: Any, schema: ConnectSchema, form: JsonForm) -> Any:
    return _pc.if_else(column.is_valid(), texts, pa.scalar(_null_text(schema, form), _TEXT))


def _struct(column: Any, schema: ConnectSchema, form: JsonForm, parents: Any) -> list[Any]:
    pieces: list[Any] = []
    literal = "{"
    for index, part in enumerate(schema.fields):
        literal += f'{"," if index else ""}"{escaped(part.name)}":'
        for piece in _pieces(column.field(index), part.schema, form, parents):
            if isinstance(piece, str):
                literal += piece
            else:
                if literal:
                    pieces.append(literal)
                    literal = ""
                pieces.append(piece)
    pieces.append(literal + "}")
    return pieces


def _values(column: Any, schema: ConnectSchema, form: JsonForm) -> list[Any]:
    """The pieces of a column that is not a struct. Rows that are null have any text."""
    match schema.type:
        case ConnectType.STRING:
            return ['"', escaped_texts(column), '"']
        case ConnectType.BYTES if schema.name == DECIMAL_NAME:
            if form.numeric_decimals:
                return [column.cast(pa.string()).cast(_TEXT)]
            return ['"', base64_texts(decimal_bytes(column)), '"']
        case ConnectType.BYTES:
            return ['"', base64_texts(column), '"']
        case ConnectType.FLOAT32 | ConnectType.FLOAT64:
            return [_floats(column)]
        case ConnectType.ARRAY:
            return _array(column, schema, form)
        case ConnectType.MAP:
            return _map(column, schema, form)
        case ConnectType.BOOLEAN:
            return [column.cast(pa.string()).cast(_TEXT)]
        case _:
            return [_integers(column)]


def _integers(column: Any) -> Any:
    """Digits of integers, dates, times and timestamps."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column.cast(pa.string()).cast(_TEXT)


def escaped_texts(column: Any) -> Any:
    """What is between the quotation marks of JSON strings, for a string column. Nulls stay null."""
    texts = column.cast(_TEXT)
    data = _bytes_of(texts)
    if not len(data):
        return texts
    lowest, highest = data.min(), data.max()
    if (data == ord("\\")).any():
        texts = _pc.replace_substring(texts, "\\", "\\\\")
    if (data == ord('"')).any():
        texts = _pc.replace_substring(texts, '"', '\\"')
    if lowest < 0x20:
        for code in np.unique(data[data < 0x20]).tolist():
            texts = _pc.replace_substring(texts, chr(code), escaped(chr(code)))
    if highest >= _FOUR_BYTES:
        texts = _replace_some(texts, _pc.match_substring_regex(texts, _BEYOND_BMP), _escape_beyond)
    return texts


def _escape_beyond(text: str) -> str:
    return "".join(escaped(letter) if letter > "\uffff" else letter for letter in text)


def _bytes_of(texts: Any) -> Any:
    """The bytes of a large string column, among them those of null rows, as numpy has them."""
    _, offsets_buffer, data = texts.buffers()
    if data is None or not len(texts):
        return np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int64)
    return np.frombuffer(data, np.uint8)[offsets[texts.offset] : offsets[texts.offset + len(texts)]]


def _replace_some(texts: Any, where: Any, change: Any) -> Any:
    """The texts with those of some rows changed by a function of Python."""
    where = _pc.fill_null(where, False)
    changed = [change(text) for text in texts.filter(where).to_pylist()]
    return _pc.replace_with_mask(texts, where, pa.array(changed, _TEXT)) if changed else texts


def _floats(column: Any) -> Any:
    """Arrow prints the same shortest digits as Java between 0.001 and 10,000,000, but no `.0`."""
    single = pa.types.is_float32(column.type)
    texts = column.cast(pa.string()).cast(_TEXT)
    values = _pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    size = np.abs(values)
    plain = (values == 0) | ((size >= 1e-3) & (size < 1e7))
    whole = _pc.invert(_pc.match_substring(texts, "."))
    if _pc.any(whole).as_py():
        texts = _pc.if_else(whole, _join(texts, ".0"), texts)
    if plain.all():
        return texts
    rows = np.flatnonzero(~plain)
    changed = [float_text(value, single=single) for value in values[rows].tolist()]
    return _pc.replace_with_mask(texts, pa.array(~plain), pa.array(changed, _TEXT))


def _offsets_of(column: Any) -> tuple[Any, int, int]:
    """(the offsets of a list or map column from 0 on (Arrow, int64), the first element, the number of elements)."""
    offsets = column.offsets.cast(pa.int64())
    first = offsets[0].as_py()
    count = offsets[len(column)].as_py() - first
    return (_pc.subtract(offsets, first) if first else offsets), first, count


def _lists_of(texts: Any, offsets: Any) -> Any:
    """For each list, its elements' texts with commas between them."""
    return _pc.binary_join(pa.LargeListArray.from_arrays(offsets, texts), pa.scalar(",", _TEXT))


def _array(column: Any, schema: ConnectSchema, form: JsonForm) -> list[Any]:
    assert schema.items is not None
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    offsets, first, count = _offsets_of(column)
    elements = json_texts(column.values.slice(first, count), schema.items, form)
    return ["[", _lists_of(elements, offsets), "]"]


def _map(column: Any, schema: ConnectSchema, form: JsonForm) -> list[Any]:
    assert schema.keys is not None
    assert schema.items is not None
    offsets, first, count = _offsets_of(column)
    keys = json_texts(column.keys.slice(first, count), schema.keys, form)
    items = json_texts(column.items.slice(first, count), schema.items, form)
    if schema.keys.type is ConnectType.STRING:
        return ["{", _lists_of(_join(keys, ":", items), offsets), "}"]
    return ["[", _lists_of(_join("[", keys, ",", items, "]"), offsets), "]"]


def _joined(pieces: list[Any], rows: int) -> Any:
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        return pieces[0]
    if all(isinstance(piece, str) for piece in pieces):
        return pa.repeat(pa.scalar("".join(pieces), _TEXT), rows)
    return _join(*pieces)


def _join(*pieces: Any) -> Any:
    """Texts joined row by row. A null piece is replaced by nothing: its row is null, and the caller overwrites it."""
    arrays = [pa.scalar(piece, _TEXT) if isinstance(piece, str) else piece for piece in pieces]
    return _pc.binary_join_element_wise(*arrays, pa.scalar("", _TEXT), null_handling="replace", null_replacement="")
