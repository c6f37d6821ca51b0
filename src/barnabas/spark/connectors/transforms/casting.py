"""Codec: a column of one type -> a column of another type, with the rules of Connect's Cast.

Numbers are narrowed as in Java: integers keep their low bits, floats become the nearest integer towards zero within
the range of int32 (for int8 and int16, which then keep the low bits) or int64, and NaN becomes 0. A number is true
unless its integer part is 0. A text is true if it is `true` in any case. Source: `transforms.Cast.castValueToType`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from barnabas.spark.connectors.transforms.errors import TransformDataError, TransformPlanError
from barnabas.spark.connectors.transforms.texts import column_texts, is_bytes, is_nested, is_texts, milliseconds

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

CAST_TYPES: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
"""The types that Cast can give, by Connect's names."""

_INTEGER = r"^[+-]?[0-9]+$"
_FLOAT = r"^\s*[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)\s*$"


def check_cast(source: Any, target: Any, where: str) -> None:
    """Raise TransformPlanError if Cast cannot change this type into the other one."""
    if is_nested(source):
        raise TransformPlanError(f"Cast cannot change {where} of type {source}; name one of its fields instead")
    if is_bytes(source) and not pa.types.is_string(target):
        raise TransformPlanError(f"Cast can change {where} of type {source} only to string (base64), not to {target}")


def cast_column(array: Any, target: Any, where: str) -> Any:
    """The column in the target type; nulls stay null. Raises TransformDataError for a text that is no number.

    `where` names the column in errors. The types must have passed `check_cast`.
    """
    source = array.type
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_string(target):
        return column_texts(array)
    if pa.types.is_temporal(source) and not pa.types.is_duration(source):
        array = array.cast(pa.int32()) if pa.types.is_date32(source) else milliseconds(array)
    if is_texts(source):
        return _from_texts(array.cast(pa.string()), target, where)
    if pa.types.is_boolean(target):
        return array if pa.types.is_boolean(source) else _pc.not_equal(_to_integer(array, pa.int64()), 0)
    if pa.types.is_integer(target):
        return _to_integer(array, target)
    return array.cast(target, safe=False)


def _to_integer(array: Any, target: Any) -> Any:
    if pa.types.is_decimal(array.type):
        cells = [None if cell is None else _low_bits(int(cell), 64) for cell in array.to_pylist()]
        return pa.array(cells, pa.int64()).cast(target, safe=False)
    if not pa.types.is_floating(array.type):
        return array.cast(target, safe=False)
    values = np.trunc(np.nan_to_num(array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False), nan=0.0))
    if pa.types.is_int64(target):
        high, low = values >= 2.0**63, values < -(2.0**63)
        whole = np.where(high | low, 0.0, values).astype(np.int64)
        whole = np.where(high, np.iinfo(np.int64).max, np.where(low, np.iinfo(np.int64).min, whole))
    else:
        whole = np.clip(values, -(2.0**31), 2.0**31 - 1).astype(np.int64)
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(whole, pa.int64(), mask=mask).cast(target, safe=False)


def _low_bits(value: int, bits: int) -> int:
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def _from_texts(texts: Any, target: Any, where: str) -> Any:
    if pa.types.is_boolean(target):
        return _pc.equal(_pc.ascii_lower(texts), "true")
    whole = pa.types.is_integer(target)
    matches = _pc.match_substring_regex(texts, _INTEGER if whole else _FLOAT)
    if not _pc.all(matches.fill_null(True)).as_py():
        raise _no_number(texts[matches.to_pylist().index(False)], target, where)
    plain = texts
    if not whole:
        plain = _pc.replace_substring_regex(_pc.utf8_trim_whitespace(texts), r"([0-9.])[fFdD]$", r"\1")
        plain = _pc.replace_substring_regex(plain, r"^([+-]?)Infinity$", r"\1inf")
    plain = _pc.replace_substring_regex(plain, r"^\+", "")
    try:
        return plain.cast(target)
    except pa.ArrowInvalid:
        for row in range(len(plain)):
            try:
                plain.slice(row, 1).cast(target)
            except pa.ArrowInvalid:
                raise _no_number(texts[row], target, where) from None
        raise


def _no_number(cell: Any, target: Any, where: str) -> TransformDataError:
    return TransformDataError(
        f"Cast cannot change {where} to {target}: {cell.as_py()!r} is no such number or out of range"
    )


def cast_values(values: list[Any], target: Any, where: str) -> list[Any]:
    """Values without a schema in the target type, as Python values. Raises TransformDataError."""
    result: list[Any] = [None] * len(values)
    groups: dict[type, list[int]] = {}
    for row, value in enumerate(values):
        if value is not None:
            groups.setdefault(type(value), []).append(row)
    for kind, rows in groups.items():
        if kind in (dict, list):
            word = "object" if kind is dict else "array"
            raise TransformDataError(f"Cast cannot change {where}: it is a JSON {word}; name one of its fields instead")
        try:
            column = pa.array([values[row] for row in rows])
        except (pa.ArrowInvalid, OverflowError):
            raise TransformDataError(f"Cast cannot change {where}: an integer does not fit into 64 bits") from None
        cells = cast_column(column, target, where).to_pylist()
        if pa.types.is_float32(target):
            cells = [float(str(np.float32(cell))) for cell in cells]  # 0.1, not 0.10000000149011612
        for row, value in zip(rows, cells, strict=True):
            result[row] = value
    return result
