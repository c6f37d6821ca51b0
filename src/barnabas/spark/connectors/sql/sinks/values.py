"""Codec: columns of Arrow -> texts that a database reads for a column of its table, and the rows that do not fit.

    BOOLEAN          0 or 1
    INTEGER .. FLOAT numbers in decimal notation
    BYTES            hexadecimal digits; the session adds what its database needs around them
    DATE, TIME       2024-01-31, 12:30:00.000001
    LOCAL_TIMESTAMP  2024-01-31 12:30:00.000001, in db.timezone
    INSTANT          the same in UTC, and +00 after it (not for MySQL, whose session is in UTC)
    JSON             JSON texts
    ARRAY            {a,"b c",NULL}, as PostgreSQL reads it
    TEXT, OTHER      texts

Whole columns are converted by Arrow; only nested values pass through Python objects.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.converters.byte_texts import hexadecimal_texts
from barnabas.spark.connectors.sinking.ports import Problem
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.column_types import plain_type
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.connectors.sql.sinks.ports import ColumnKind, TableColumn
from barnabas.spark.records.encoding import float_text

_K = ColumnKind
_TEXTS: Final = (_K.TEXT, _K.JSON, _K.OTHER)
_TIMES: Final = (_K.DATE, _K.LOCAL_TIMESTAMP, _K.INSTANT)
_MICROS: Final = pa.timestamp("us")
_UTC_MICROS: Final = pa.timestamp("us", "UTC")
_DAY_US: Final = 86_400_000_000
_EXACT_LENGTH: Final = 15
"""A number in decimal notation with so many characters is the same number as a double."""
_LOCAL_TEXT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?)?$"
_ZONED_TEXT: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
)
"""The forms of timestamps in texts, without and with an offset from UTC."""


class TextOptions(msgspec.Struct, frozen=True):
    """What texts depend on besides the column."""

    dialect: Dialect
    time_zone: str = "UTC"


def texts_of(array: Any, column: TableColumn, options: TextOptions) -> tuple[Any, list[Problem]]:
    """The texts of a column of rows, and the rows whose values the column cannot hold (their texts are null). Raises
    DatabaseSinkError if values of this type cannot be in the column at all.
    """
    array = _plain(array)
    problems = _range_problems(array, column, options.dialect)
    if problems:
        array = _without(array, problems)
    problems += _fraction_problems(array, column) + _text_digits_problems(array, column)
    if problems:
        array = _without(array, problems)
    try:
        texts = _texts(array, column, options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DatabaseSinkError(
            f"the column {column.name} cannot be written as {column.type}: {error}; cast it before it is written"
        ) from error
    more = _length_problems(texts, column, options.dialect)
    if more:
        problems += more
        texts = _without(texts, more)
    return texts, sorted(problems, key=lambda problem: problem.row)


def _plain(array: Any) -> Any:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = plain_type(array.type)
    return array if array.type.equals(kind) else array.cast(kind)


def _without(array: Any, problems: list[Problem]) -> Any:
    """The array with nulls in the rows of the problems."""
    mask = [False] * len(array)
    for problem in problems:
        mask[problem.row] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)


# -- what does not fit -------------------------------------------------------------------------------------------------


def _rows_where(mask: Any) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return found


def _shown(array: Any, row: int) -> str:
    text = repr(array[row].as_py())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _problems(array: Any, mask: Any, column: TableColumn, reason: str) -> list[Problem]:
    return [
        Problem(row, f"its value {_shown(array, row)} for the column {column.name} ({column.type}) {reason}")
        for row in _rows_where(mask)
    ]


def _range_problems(array: Any, column: TableColumn, dialect: Dialect) -> list[Problem]:
    types = pa.types
    if types.is_floating(array.type) and dialect is Dialect.MYSQL and column.kind in (_K.FLOAT, _K.DECIMAL):
        mask = pc.invert(pc.is_finite(array))
        return _problems(
            array, mask, column, "is no number, and columns of MySQL and MariaDB have no NaN and no infinity"
        )
    if types.is_integer(array.type) and column.kind is _K.INTEGER and column.bits is not None:
        least = 0 if column.unsigned else -(1 << (column.bits - 1))
        most = (1 << column.bits) - 1 if column.unsigned else (1 << (column.bits - 1)) - 1
        mask = _outside(array, least, most)
        return [] if mask is None else _problems(array, mask, column, f"is not from {least} to {most}")
    if types.is_decimal(array.type) and column.precision is not None and column.scale is not None:
        whole = column.precision - column.scale
        if array.type.precision - array.type.scale <= whole and array.type.scale <= column.scale:
            return []
        limit = 10**whole
        bad = [
            row
            for row, value in enumerate(array.to_pylist())
            if value is not None and (abs(value) >= limit or _digits_after_point(value) > column.scale)
        ]
        return [
            Problem(row, f"its value {_shown(array, row)} for the column {column.name} ({column.type}) has too many"
                    " digits")
            for row in bad
        ]  # fmt: skip
    return []


def _text_digits_problems(array: Any, column: TableColumn) -> list[Problem]:
    """Numbers as texts with more digits behind the point than the column keeps, which a database would round."""
    scale = 0 if column.kind is _K.INTEGER else column.scale
    if not pa.types.is_string(array.type) or column.kind not in (_K.INTEGER, _K.DECIMAL) or scale is None or scale < 0:
        return []
    mask = pc.match_substring_regex(array, rf"^\s*[+-]?[0-9]*\.[0-9]{{{scale}}}[0-9]*[1-9]")
    return _problems(array, mask, column, "has more digits behind the point than the column keeps")


def _digits_after_point(value: Any) -> int:
    exponent: int = value.normalize().as_tuple().exponent
    return max(0, -exponent)


def _outside(array: Any, least: int, most: int) -> Any:
    """Which integers are outside of a range; None if the type has no such numbers."""
    bits = array.type.bit_width
    if pa.types.is_unsigned_integer(array.type):
        lowest, highest = 0, (1 << bits) - 1
    else:
        lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    masks = []
    if lowest < least:
        masks.append(pc.less(array, pa.scalar(least, array.type)))
    if highest > most:
        masks.append(pc.greater(array, pa.scalar(most, array.type)))
    if not masks:
        return None
    return masks[0] if len(masks) == 1 else pc.or_(*masks)


def _fraction_problems(array: Any, column: TableColumn) -> list[Problem]:
    if not pa.types.is_floating(array.type):
        return []
    if column.kind is _K.INTEGER:
        mask = pc.or_(pc.invert(pc.is_finite(array)), pc.not_equal(pc.floor(array), array))
        return _problems(array, mask, column, "is no integer")
    return []


def _lossy_decimals(texts: Any, column: TableColumn) -> list[Problem]:
    """Numbers for a DECIMAL of SQLite, which it keeps as 64 bits: an integer, or else a double."""
    places = _rows_where(pc.greater(pc.utf8_length(texts), _EXACT_LENGTH))
    found = []
    for row, text in zip(places, texts.take(pa.array(places, pa.int64())).to_pylist(), strict=True):
        number = Decimal(text)
        is_integer = number == number.to_integral_value() and abs(number) < 1 << 63
        if number.is_finite() and not is_integer and Decimal(repr(float(text))) != number:
            found.append(row)
    reason = "has more digits than SQLite keeps in it: declare the column TEXT"
    return [
        Problem(row, f"its value {texts[row].as_py()} for the column {column.name} ({column.type}) {reason}")
        for row in found
    ]


def _length_problems(texts: Any, column: TableColumn, dialect: Dialect) -> list[Problem]:
    problems: list[Problem] = []
    if dialect is Dialect.SQLITE and column.kind is _K.DECIMAL:
        return _lossy_decimals(texts, column)
    if column.kind is _K.BYTES:
        if column.size is not None:
            mask = pc.greater(pc.binary_length(texts), 2 * column.size)
            return _too_long(mask, column, f"{column.size} bytes")
        return []
    if column.length is not None:
        problems = _too_long(pc.greater(pc.utf8_length(texts), column.length), column, f"{column.length} characters")
    if column.size is not None:
        more = _too_long(pc.greater(pc.binary_length(texts), column.size), column, f"{column.size} bytes")
        known = {problem.row for problem in problems}
        problems += [problem for problem in more if problem.row not in known]
    if dialect is Dialect.POSTGRES and column.kind in (*_TEXTS, _K.ARRAY):
        mask = pc.match_substring(texts, "\0")
        problems += [
            Problem(row, f"its value for the column {column.name} has the character 0, which PostgreSQL's texts cannot"
                    " have")
            for row in _rows_where(mask)
        ]  # fmt: skip
    return problems


def _too_long(mask: Any, column: TableColumn, most: str) -> list[Problem]:
    return [
        Problem(row, f"its value for the column {column.name} ({column.type}) has more than {most}")
        for row in _rows_where(mask)
    ]


# -- texts -------------------------------------------------------------------------------------------------------------


def _texts(array: Any, column: TableColumn, options: TextOptions) -> Any:
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if types.is_float32(kind) and options.dialect is Dialect.MYSQL and column.kind is _K.FLOAT:
        array, kind = array.cast(pa.float64()), pa.float64()  # MySQL refuses 3.4028235e38, the largest float
    if column.kind is _K.ARRAY:
        return _array_texts(array, column, options)
    if types.is_nested(kind):
        if column.kind in _TEXTS:
            return _json_texts(_with_texts(array, options.dialect))
    elif types.is_boolean(kind):
        if column.kind in _TEXTS:
            return array.cast(pa.string())
        if column.kind in (_K.BOOLEAN, _K.INTEGER, _K.DECIMAL, _K.FLOAT):
            return array.cast(pa.int8()).cast(pa.string())
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        if column.kind in (_K.BOOLEAN, _K.INTEGER, _K.DECIMAL, _K.FLOAT, *_TEXTS):
            return _number_texts(array, column)
    elif types.is_string(kind):
        return _from_texts(array, column, options)
    elif types.is_binary(kind):
        if column.kind is _K.BYTES:
            return hexadecimal_texts(array).cast(pa.string())
        if column.kind in _TEXTS:
            return array.cast(pa.string())
    elif types.is_date(kind):
        if column.kind in (*_TIMES, *_TEXTS):
            return _date_texts(array, column, options)
    elif types.is_time(kind):
        if column.kind in (_K.TIME, *_TEXTS):
            return _time_texts(array)
    elif types.is_timestamp(kind) and column.kind in (*_TIMES, *_TEXTS):
        return _timestamp_texts(array, column, options)
    raise DatabaseSinkError(
        f"the column {column.name} is {column.type}, and the rows have {kind} for it: cast it, write it under another"
        " name, or change the column"
    )


def _time_texts(array: Any) -> Any:
    """Times of day. The end of a day, which Arrow has no text for, is 24:00:00."""
    array = array.cast(pa.time64("us"), safe=False)
    ends = pc.equal(array.view(pa.int64()), _DAY_US)
    if not pc.any(ends).as_py():
        return array.cast(pa.string())
    return pc.if_else(ends, "24:00:00", array.cast(pa.string()))


def _number_texts(array: Any, column: TableColumn) -> Any:
    if column.kind is _K.INTEGER and pa.types.is_floating(array.type):
        array = array.cast(pa.int64())
    if column.kind is _K.BOOLEAN:
        array = pc.not_equal(array, pa.scalar(0, array.type)).cast(pa.int8())
    texts = array.cast(pa.string())
    return _without_exponents(texts) if pa.types.is_decimal(array.type) else texts


def _without_exponents(texts: Any) -> Any:
    """Decimals that Arrow prints as 1E-38, which DuckDB does not read, with all of their zeros."""
    mask = pc.fill_null(pc.match_substring(texts, "E"), False)
    if not pc.any(mask).as_py():
        return texts
    written = [format(Decimal(text), "f") for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(written, pa.string()))


def _from_texts(array: Any, column: TableColumn, options: TextOptions) -> Any:
    if column.kind is _K.BYTES:
        return hexadecimal_texts(array.cast(pa.binary())).cast(pa.string())
    if column.kind is _K.BOOLEAN:
        lowered = pc.utf8_lower(array)
        for words, digit in ((("true", "t", "yes", "on"), "1"), (("false", "f", "no", "off"), "0")):
            lowered = pc.if_else(pc.is_in(lowered, pa.array(words)), digit, lowered)
        return lowered
    if column.kind in (_K.LOCAL_TIMESTAMP, _K.INSTANT):
        return _times_from_texts(array, column, options)
    return array


def _times_from_texts(array: Any, column: TableColumn, options: TextOptions) -> Any:
    """Texts of timestamps as the column has them. What a text becomes does not depend on the other rows. A text that
    Arrow does not read, such as infinity, stays as it is: the database reads it, or refuses it.
    """
    for kind in (_MICROS, _UTC_MICROS):
        try:
            return _timestamp_texts(array.cast(kind), column, options)
        except pa.ArrowInvalid:
            continue  # some texts have an offset and others have none, or some are no timestamps
    texts = array
    for pattern, kind in ((_LOCAL_TEXT, _MICROS), (_ZONED_TEXT, _UTC_MICROS)):
        mask = pc.fill_null(pc.match_substring_regex(array, pattern), False)
        if pc.any(mask).as_py():
            found = _converted_times(array.filter(mask), kind, column, options)
            texts = pc.replace_with_mask(texts, mask, found)
    return texts


def _converted_times(array: Any, kind: Any, column: TableColumn, options: TextOptions) -> Any:
    """Texts of one form as timestamps of this type, without digits behind the microseconds."""
    try:
        short = pc.replace_substring_regex(array, r"(\.[0-9]{6})[0-9]+", r"\1")
        return _timestamp_texts(short.cast(kind), column, options)
    except pa.ArrowInvalid:  # one of them is no timestamp, such as 2024-02-30T00:00:00Z
        if len(array) == 1:
            return array
    half = len(array) // 2
    halves = (array.slice(0, half), array.slice(half))
    return pa.concat_arrays([_converted_times(each, kind, column, options) for each in halves])


def _date_texts(array: Any, column: TableColumn, options: TextOptions) -> Any:
    if column.kind is _K.INSTANT:
        return _timestamp_texts(array.cast(_MICROS), column, options)
    return array.cast(pa.date32()).cast(pa.string())


def _timestamp_texts(array: Any, column: TableColumn, options: TextOptions) -> Any:
    """Timestamps with a zone are instants, and those without one are in db.timezone."""
    is_instant = array.type.tz is not None
    utc = pa.timestamp("us", "UTC")
    if column.kind is _K.INSTANT:
        array = array.cast(utc, safe=False) if is_instant else _as_instant(array.cast(_MICROS, safe=False), options)
        texts = array.cast(utc).cast(_MICROS).cast(pa.string())
        if options.dialect is Dialect.MYSQL:
            return texts
        return pc.binary_join_element_wise(texts, "+00", "")
    if column.kind in _TEXTS and is_instant:
        texts = array.cast(utc, safe=False).cast(_MICROS).cast(pa.string())
        return pc.binary_join_element_wise(texts, "Z", "")
    if is_instant:
        array = pc.local_timestamp(array.cast(pa.timestamp("us", options.time_zone), safe=False))
    array = array.cast(_MICROS, safe=False)
    if column.kind is _K.DATE:
        return array.cast(pa.date32(), safe=False).cast(pa.string())
    return array.cast(pa.string())


def _as_instant(array: Any, options: TextOptions) -> Any:
    if options.time_zone == "UTC":
        return array.cast(pa.timestamp("us", "UTC"))
    zoned = pc.assume_timezone(array, options.time_zone, ambiguous="earliest", nonexistent="latest")
    return zoned.cast(pa.timestamp("us", "UTC"))


def _json_texts(array: Any) -> Any:
    """Nested values as JSON, in which bytes are base64, and NaN and infinities are texts, as Connect writes them."""
    encode = msgspec.json.Encoder(decimal_format="number").encode
    values = array.to_pylist(maps_as_pydicts="strict")
    if _has_floats(array.type):
        values = [_without_nan(value) for value in values]
    return pa.array([None if value is None else encode(value).decode() for value in values], pa.string())


def _has_floats(kind: Any) -> bool:
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return float_text(value)
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return {name: _without_nan(one) for name, one in value.items()} if isinstance(value, dict) else value


def _with_texts(array: Any, dialect: Dialect) -> Any:
    """Lists of values that Python or JSON would change as lists of texts: times, which may be 24:00:00, and for DuckDB
    bytes, in the form that it casts to BLOBs: \\x and two digits for each byte.
    """
    if not pa.types.is_list(array.type):
        return array
    if pa.types.is_time(array.type.value_type):
        texts = _time_texts(array.flatten())
    elif pa.types.is_binary(array.type.value_type) and dialect is Dialect.DUCKDB:
        digits = hexadecimal_texts(array.flatten()).cast(pa.string())
        texts = pc.replace_substring_regex(digits, "(..)", r"\\x\1")
    else:
        return array
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(_offsets(array), texts, mask=mask)


def _array_texts(array: Any, column: TableColumn, options: TextOptions) -> Any:
    """Lists of scalars as PostgreSQL's arrays."""
    if pa.types.is_string(array.type):
        return array
    if not pa.types.is_list(array.type) or column.element is None or pa.types.is_nested(array.type.value_type):
        raise DatabaseSinkError(
            f"the column {column.name} is {column.type}, and the rows have {array.type} for it: cast it to an array"
        )
    element = TableColumn(column.name, column.type, column.element)
    texts, problems = texts_of(array.flatten(), element, options)
    if problems:
        raise DatabaseSinkError(
            f"the column {column.name} is {column.type}, and an element of a list does not fit: {problems[0].reason}:"
            " cast the elements, or change the column"
        )
    if column.element is _K.BYTES:
        texts = pc.binary_join_element_wise("\\x", texts, "")
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    quoted = pc.fill_null(pc.binary_join_element_wise('"', escaped, '"', ""), "NULL")
    offsets = _offsets(array)
    lists = pa.ListArray.from_arrays(offsets, quoted, mask=array.is_null() if array.null_count else None)
    return pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")


def _offsets(array: Any) -> Any:
    """The offsets of lists into their flattened values, in which null lists have no values."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
