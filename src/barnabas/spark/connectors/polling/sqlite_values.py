"""Codec: values of SQLite, each of which has a type of its own, as Arrow columns of the declared types.

    declared type contains        Arrow                     accepted values
    BOOL                          bool                      0, 1
    INT                           int64                     integers
    CHAR, CLOB, TEXT, JSON, UUID  string                    text, numbers
    BLOB                          binary                    bytes, text
    REAL, FLOA, DOUB              double                    numbers
    DECIMAL(p,s), NUMERIC(p,s)    decimal128(p, s)          numbers, text of numbers, with s digits behind the point
    DATE                          date32                    text such as 2024-01-31, numbers by date_precision: midnight
    DATETIME, TIMESTAMP           timestamp (UTC)           ISO text with microseconds, numbers by date_precision
    another one, or none          that of the first value   values of this type

The rules are SQLite's for affinity (https://sqlite.org/datatype3.html, 3.1), with the types that sqlite-jdbc knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.polling.errors import PolledValueError

_ARGUMENTS: Final = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_DIGITS_MAX: Final = 38
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOO_FINE: Final = re.compile(r"[.,]\d{6}\d*[1-9]")
"""A fraction of a second with more than six digits, which Python would cut off."""
_FLOAT_DIGITS: Final = 15
"""Decimal digits that every floating-point number keeps."""
TIMESTAMP: Final = pa.timestamp("us", "UTC")


class DatePrecision(StrEnum):
    """`date_precision` of sqlite-jdbc: the unit of times that are stored as integers."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"


class TimeRules(Struct, frozen=True):
    """How times are read: the unit of numbers, and the zone of text without one."""

    precision: DatePrecision = DatePrecision.MILLISECONDS
    zone: str = "UTC"


_BY_WORD: Final = (
    ("BOOL", pa.bool_()),
    ("DATETIME", TIMESTAMP),
    ("TIMESTAMP", TIMESTAMP),
    ("DATE", pa.date32()),
    ("INT", pa.int64()),
    ("CHAR", pa.string()),
    ("CLOB", pa.string()),
    ("TEXT", pa.string()),
    ("JSON", pa.string()),
    ("UUID", pa.string()),
    ("BLOB", pa.binary()),
    ("REAL", pa.float64()),
    ("FLOA", pa.float64()),
    ("DOUB", pa.float64()),
)
_BY_STORAGE: Final = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "blob": pa.binary()}


def declared_type(declared: str, storage: str) -> Any:
    """The Arrow type of a column with this declaration; `storage` is typeof() of its first value."""
    text = declared.upper()
    if "DEC" in text or "NUM" in text:
        arguments = _ARGUMENTS.search(text)
        if arguments is not None:
            digits, scale = int(arguments[1]), int(arguments[2] or 0)
            if 0 < digits <= _DIGITS_MAX and scale <= digits:
                return pa.decimal128(digits, scale)
        return pa.float64()
    for word, kind in _BY_WORD:
        if word in text:
            return kind
    return _BY_STORAGE.get(storage, pa.string())


def to_column(values: Sequence[Any], kind: Any, name: str, times: TimeRules) -> Any:
    """Values of sqlite3 as an Arrow array. Raises PolledValueError for a value that the type cannot have."""
    read = _reader(kind, times)
    try:
        return pa.array([None if value is None else read(value) for value in values], kind)
    except (TypeError, ValueError, OverflowError, InvalidOperation, pa.ArrowInvalid, pa.ArrowTypeError):
        value = next(value for value in values if value is not None and not _is_readable(value, read, kind))
        shown = repr(value)[:60]
        raise PolledValueError(
            f"the column {name} is read as {kind}, and a row has the value {shown} there: correct the row, declare"
            " the column with the type of its values, or read it with query and an expression such as CAST"
        ) from None


def _is_readable(value: Any, read: Callable[[Any], Any], kind: Any) -> bool:
    try:
        pa.array([read(value)], kind)
    except (TypeError, ValueError, OverflowError, InvalidOperation, pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def _reader(kind: Any, times: TimeRules) -> Callable[[Any], Any]:
    types = pa.types
    if types.is_boolean(kind):
        return _boolean
    if types.is_integer(kind):
        return _integer
    if types.is_floating(kind):
        return _float
    if types.is_string(kind):
        return _text
    if types.is_binary(kind):
        return _bytes
    if types.is_decimal(kind):
        quantum = Decimal(1).scaleb(-kind.scale)
        return lambda value: _decimal(value, quantum)
    zone = UTC if times.zone == "UTC" else ZoneInfo(times.zone)
    if types.is_date(kind):
        return lambda value: _date(value, times.precision, zone)
    return lambda value: _moment(value, times.precision, zone)


def _boolean(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError
    return bool(value)


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise TypeError


def _float(value: Any) -> float:
    if isinstance(value, float | int) and (not isinstance(value, int) or abs(value) <= 1 << 53):
        return float(value)
    raise TypeError


def _text(value: Any) -> str:
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError


def _decimal(value: Any, quantum: Decimal) -> Decimal:
    """SQLite keeps decimals as floating-point numbers, whose shortest text has the digits that were written. A sum of
    such numbers may have more digits, of which the first ones are right."""
    if isinstance(value, bytes):
        raise TypeError
    number = Decimal(str(value))
    rounded = number.quantize(quantum)
    if rounded != number and not (isinstance(value, float) and rounded == Decimal(f"{value:.{_FLOAT_DIGITS}g}")):
        raise ValueError
    return rounded


def _date(value: Any, precision: DatePrecision, zone: tzinfo) -> date:
    """A time of day other than midnight would be lost."""
    if isinstance(value, str):
        found = datetime.fromisoformat(value)
    else:
        found = _moment(value, precision, zone).astimezone(zone)
    if found.time() != time.min:
        raise ValueError
    return found.date()


def _moment(value: Any, precision: DatePrecision, zone: tzinfo) -> datetime:
    if isinstance(value, str):
        if _TOO_FINE.search(value):
            raise ValueError
        found = datetime.fromisoformat(value)
        return (found.replace(tzinfo=zone) if found.tzinfo is None else found).astimezone(UTC)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    factor = 1_000_000 if precision is DatePrecision.SECONDS else 1_000
    return _EPOCH + timedelta(microseconds=round(value * factor))
