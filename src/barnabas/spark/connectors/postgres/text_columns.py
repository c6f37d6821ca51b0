"""Codec: columns of values in text form -> columns of their Arrow types.

The text form follows the settings of the session, which SESSION_SETTINGS fixes: dates are ISO, times with zone are in
UTC, bytea is hexadecimal, floats have all their digits. A column is converted by Arrow as a whole; only a column that
has values outside of the range of its Arrow type is searched for them (`ValuePolicy`).
Source: PostgreSQL's manual, chapters "Data Types" and "Server Configuration", section "Client Connection Defaults".
"""

from __future__ import annotations

import binascii
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct

from barnabas.client.columns.byte_column import np, pa, validity_buffer
from barnabas.spark.connectors.postgres.errors import PostgresValueError
from barnabas.spark.connectors.postgres.text_literals import LiteralError, split_arrays, split_hstores
from barnabas.spark.connectors.postgres.types import ColumnType, Kind, NotANumber, OutOfRange, ValuePolicy

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

SESSION_SETTINGS: Final = {
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "timezone": "UTC",
    "xmloption": "content",
}
"""What a session sets before it reads changes or rows, so that the same value always has the same text."""

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Stands for an unchanged TOAST value in change events. Debezium's `unavailable.value.placeholder`."""

_SHOWN: Final = 60
_LATE: Final = "9999-12-31 23:59:59.999999"
_EARLY: Final = "0001-01-01 00:00:00"
_END_OF_DAY: Final = "24:00:00"
"""A time of PostgreSQL that follows 23:59:59.999999. Arrow's time64 keeps its number, and shows it as 00:00:00."""
_DAY_US: Final = 86_400_000_000
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")


class Converted(Struct, frozen=True):
    """A column in its Arrow type, and how many of its values the policy replaced."""

    column: Any
    replaced: int


def convert(column: Any, kind: ColumnType, policy: ValuePolicy, name: str) -> Converted:
    """Read a binary column of values in text form. `name` is that of the column, for errors.

    Raises PostgresValueError if a value cannot be read in this type, or the policy does not allow it.
    """
    try:
        return _convert(column.cast(pa.string()), kind, policy)
    except (pa.ArrowInvalid, LiteralError, binascii.Error) as error:
        raise _refusal(column, kind, policy, name) from error


def fill_unavailable(column: Any, unchanged: Any) -> Any:
    """Put UNAVAILABLE into a string or binary column where `unchanged` (numpy, or None for nowhere) is true.

    A column of another type stays as it is: null, so that only `unchanged` says that the value is unknown.
    """
    if unchanged is None or not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column
    return _pc.if_else(pa.array(unchanged), pa.scalar(UNAVAILABLE, pa.string()).cast(column.type), column)


def _convert(text: Any, kind: ColumnType, policy: ValuePolicy) -> Converted:
    match kind.kind:
        case Kind.STRING:
            return _numerals(text, policy) if kind.name.startswith("numeric") else Converted(text, 0)
        case Kind.NUMBER:
            return Converted(text.cast(kind.arrow), 0)
        case Kind.BOOLEAN:
            return Converted(_booleans(text), 0)
        case Kind.BINARY:
            return Converted(_hexadecimal(text), 0)
        case Kind.DECIMAL:
            return _decimals(text, kind, policy)
        case Kind.DATE | Kind.TIME | Kind.TIMESTAMP:
            return _temporal(text, kind, policy)
        case Kind.LIST:
            assert kind.element is not None
            offsets, elements = split_arrays(text)
            flat = _convert(elements, kind.element, policy)
            lists = pa.ListArray.from_arrays(_with_nulls(offsets, text), flat.column, type=kind.arrow)
            return Converted(lists, flat.replaced)
        case Kind.MAP:
            offsets, keys, values = split_hstores(text)
            return Converted(pa.MapArray.from_arrays(_with_nulls(offsets, text), keys, values, type=kind.arrow), 0)


def _with_nulls(offsets: Any, text: Any) -> Any:
    """The offsets, null where the value is null: Arrow then makes the list or the map null."""
    return pa.array(offsets, pa.int32(), mask=np.append(text.is_null().to_numpy(zero_copy_only=False), False))


def _booleans(text: Any) -> Any:
    # An Arrow scalar, as in `equal(text, "t")`, would import pandas if it is installed: 0.3 s at the start of a query.
    true = _pc.starts_with(text, "t")
    are_letters = _pc.all(_pc.or_(true, _pc.starts_with(text, "f")), min_count=0).as_py()
    if not are_letters or (_pc.max(_pc.binary_length(text)).as_py() or 1) > 1:
        raise LiteralError("a boolean is t or f")
    return true


def _hexadecimal(text: Any) -> Any:
    """All values at once: they lie one after the other, so their hexadecimal digits do too."""
    if not _pc.all(_pc.starts_with(text, r"\x"), min_count=0).as_py():
        raise LiteralError(r"a bytea begins with \x: set bytea_output to hex")
    digits = _pc.utf8_slice_codeunits(text, 2)
    lengths = _pc.fill_null(_pc.binary_length(digits), 0).to_numpy(zero_copy_only=False)
    if (lengths & 1).any():
        raise LiteralError("a byte has two hexadecimal digits")
    joined = binascii.unhexlify(_joined(digits.drop_null()))
    offsets = np.concatenate([[0], np.cumsum(lengths // 2)]).astype(np.int32)
    valid = digits.is_valid().to_numpy(zero_copy_only=False)
    buffers = [validity_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(text), buffers)


def _joined(text: Any) -> Any:
    """The bytes of all values of a string column without nulls, without a copy."""
    if not len(text):
        return b""
    _, offsets_buffer, data = text.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)
    return b"" if data is None else data[int(offsets[text.offset]) : int(offsets[text.offset + len(text)])]


def _decimals(text: Any, kind: ColumnType, policy: ValuePolicy) -> Converted:
    try:
        return Converted(text.cast(kind.arrow), 0)
    except pa.ArrowInvalid:
        if policy.not_a_number is not NotANumber.NULL:
            raise
    numbers = _numerals(text, policy)
    return Converted(numbers.column.cast(kind.arrow), numbers.replaced)


def _numerals(text: Any, policy: ValuePolicy) -> Converted:
    """Numbers as text; with `null`, without those that are none."""
    if policy.not_a_number is not NotANumber.NULL:
        return Converted(text, 0)
    wrong = _pc.is_in(text, value_set=pa.array(_NO_NUMBERS))
    count = _pc.sum(wrong).as_py() or 0
    return Converted(_pc.if_else(wrong, pa.scalar(None, pa.string()), text) if count else text, count)


def _temporal(text: Any, kind: ColumnType, policy: ValuePolicy) -> Converted:
    try:
        return Converted(_parse_temporal(text, kind), 0)
    except pa.ArrowInvalid:
        if policy.out_of_range not in (OutOfRange.NULL, OutOfRange.CLAMP):
            raise
    late = _pc.match_substring_regex(text, r"^infinity$|^\d{5,}-")
    early = _pc.match_substring_regex(text, r"^-infinity$| BC$")
    late = _pc.and_not(late, early)
    late_text = early_text = pa.scalar(None, pa.string())
    if policy.out_of_range is OutOfRange.CLAMP:
        late_text, early_text = (pa.scalar(_bound(bound, kind)) for bound in (_LATE, _EARLY))
    replaced = _pc.if_else(late, late_text, _pc.if_else(early, early_text, text))
    count = (_pc.sum(late).as_py() or 0) + (_pc.sum(early).as_py() or 0)
    return Converted(_parse_temporal(replaced, kind), count)


def _bound(bound: str, kind: ColumnType) -> str:
    if kind.kind is Kind.DATE:
        return bound[:10]
    return bound if kind.arrow.tz is None else f"{bound}+00"


def _parse_temporal(text: Any, kind: ColumnType) -> Any:
    if kind.kind is not Kind.TIME:
        return text.cast(kind.arrow)
    ends = _pc.is_in(text, value_set=pa.array([_END_OF_DAY]))
    has_ends = _pc.any(ends).as_py()
    if has_ends:
        text = _pc.if_else(ends, pa.scalar("00:00:00"), text)
    times = _pc.binary_join_element_wise("1970-01-01", text, " ").cast(pa.timestamp("us")).cast(pa.int64())
    return (_pc.if_else(ends, pa.scalar(_DAY_US), times) if has_ends else times).view(kind.arrow)


def _refusal(column: Any, kind: ColumnType, policy: ValuePolicy, name: str) -> PostgresValueError:
    """Name the first value that fails. Halves of the column are tried, so a long column costs two conversions more."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if _fails(column.slice(low, middle - low), kind, policy):
            high = middle
        else:
            low = middle
    value = column[low].as_py()
    shown = value[:_SHOWN].decode(errors="backslashreplace") + ("..." if len(value) > _SHOWN else "")
    return PostgresValueError(
        f"the value {shown!r} in row {low} of the column {name} cannot be read as {kind.name}: {_advice(kind)}"
    )


def _fails(column: Any, kind: ColumnType, policy: ValuePolicy) -> bool:
    try:
        _convert(column.cast(pa.string()), kind, policy)
    except (pa.ArrowInvalid, LiteralError, binascii.Error):
        return True
    return False


def _advice(kind: ColumnType) -> str:
    innermost = kind
    while innermost.element is not None:
        innermost = innermost.element
    advice: list[str] = []
    if kind.kind is Kind.LIST:
        advice.append("if it has several dimensions, set array.handling.mode=text")
    if innermost.kind is Kind.DECIMAL:
        advice.append("if it is NaN, set nan.handling.mode=null, or text for all numeric columns")
    if innermost.kind in (Kind.DATE, Kind.TIMESTAMP):
        advice.append(
            "if it is infinity, or before the year 1 or after 9999, set out.of.range.handling.mode=null or clamp, or"
            " text for all columns of dates and timestamps"
        )
    advice.append("or leave the column out (column.exclude.list)")
    return "; ".join(advice)
