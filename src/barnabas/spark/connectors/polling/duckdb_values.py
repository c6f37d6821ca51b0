"""Codec: columns of DuckDB as Arrow columns of types that Spark has.

DuckDB's dates and timestamps have infinity and years from 290,308 BC to 294,246, HUGEINT 39 digits, and TIMESTAMP_NS
nanoseconds. Spark has no place for such values, and Arrow does not check them: a value that does not fit is an error.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.polling.errors import PolledValueError
from barnabas.spark.records.types import conform, spark_arrow

_AS_TEXT: Final = frozenset(("bit", "time with time zone", "uhugeint"))
_NESTED: Final = frozenset(("list", "array", "struct", "map", "union"))
_LARGEST: Final = pa.scalar(Decimal(10**38 - 1), pa.decimal128(38, 0))
_SMALLEST: Final = pa.scalar(Decimal(1 - 10**38), pa.decimal128(38, 0))
_DAYS: Final = (-719_162, 2_932_896)
"""0001-01-01 and 9999-12-31, in days since 1970."""
_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INFINITE: Final = {
    str(sign * (2**bits - 1)): text for bits in (31, 63) for sign, text in ((1, "infinity"), (-1, "-infinity"))
}


def is_text(kind: Any) -> bool:
    """Whether a column of a type of DuckDB is read as DuckDB prints it, since the driver gives the type, or one within
    it, in a form that loses something.
    """
    if kind.id in _AS_TEXT:
        return True
    return kind.id in _NESTED and any(is_text(child) for _, child in kind.children if hasattr(child, "id"))


def staged_type(kind: Any) -> Any:
    """The type in which a column of an Arrow type is staged; None if only its text can be."""
    if pa.types.is_time(kind):
        return pa.time64("us")
    try:
        return spark_arrow(kind)
    except ValueError:
        return None


def to_column(array: Any, kind: Any, name: str) -> Any:
    """An array of the driver in the type in which the column is staged. Raises PolledValueError for a value that the
    type cannot have.
    """
    wrong = _misfit(array)
    if wrong is None:
        try:
            return array if array.type == kind else conform(array, kind)
        except pa.ArrowInvalid as error:
            wrong = str(error)
    raise PolledValueError(
        f"a value of the column {name} does not fit {kind} ({wrong}): correct the row, or read the column with query"
        " and a CAST"
    )


def _misfit(array: Any) -> str | None:
    """A value that Spark has no place for, as text; None if there is none."""
    kind, types = array.type, pa.types
    children: list[Any] = []
    if types.is_list(kind) or types.is_large_list(kind) or types.is_struct(kind):
        flat = array.flatten()
        children = flat if types.is_struct(kind) else [flat]
    elif types.is_map(kind):
        children = [array.keys, array.items]
    if children:
        return next((wrong for wrong in map(_misfit, children) if wrong is not None), None)
    wrong = None
    if types.is_date(kind) or types.is_timestamp(kind):
        numbers = array.cast(pa.int32() if types.is_date(kind) else pa.int64())
        first, last = _limits(kind)
        wrong = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
        if types.is_timestamp(kind) and kind.unit == "ns":
            wrong = pc.not_equal(pc.multiply(pc.divide(numbers, 1000), 1000), numbers)
    elif types.is_decimal(kind) and kind.precision == _LARGEST.type.precision and not kind.scale:
        numbers, wrong = array, pc.or_(pc.greater(array, _LARGEST), pc.less(array, _SMALLEST))
    if wrong is None or not pc.any(wrong).as_py():
        return None
    shown, number = (str(column.filter(wrong).slice(0, 1).cast(pa.string())[0]) for column in (array, numbers))
    return _INFINITE.get(number, shown)


def _limits(kind: Any) -> tuple[int, int]:
    """The first and the last value of a type of dates or timestamps that Spark has a place for."""
    if pa.types.is_date(kind):
        return _DAYS
    day = 86_400 * _SECOND[kind.unit]
    return max(_DAYS[0] * day, -(2**63)), min((_DAYS[1] + 1) * day - 1, 2**63 - 1)
