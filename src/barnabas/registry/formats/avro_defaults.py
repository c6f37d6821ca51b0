"""Codec: checks whether a JSON value is a valid default of an Avro type."""

from __future__ import annotations

import math
from typing import Any

from barnabas.registry.formats.avro_nodes import (
    MISSING,
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    Primitive,
    RecordType,
    UnionType,
)

_INT = 1 << 31
_LONG = 1 << 63


def default_problem(node: AvroType, value: Any) -> str | None:
    """Why `value` is not a valid default of the type, or None. The JSON form of bytes is a string of the code points 0
    to 255.
    """
    match node:
        case Primitive():
            return None if _fits(node.name, value) else f"{value!r} is not a {node.name}"
        case UnionType():
            # Avro 1.12: the default must fit any branch; earlier versions require that it fits the first branch.
            if any(default_problem(branch, value) is None for branch in node.branches):
                return None
            return f"{value!r} fits no branch of the union"
        case ArrayType():
            if not isinstance(value, list):
                return f"{value!r} is not an array"
            return next(filter(None, (default_problem(node.items, item) for item in value)), None)
        case MapType():
            if not isinstance(value, dict):
                return f"{value!r} is not a map"
            return next(filter(None, (default_problem(node.values, item) for item in value.values())), None)
        case EnumType():
            return None if value in node.symbols else f"{value!r} is not a symbol of {node.fullname}"
        case FixedType():
            fits = _fits("bytes", value) and len(value) == node.size
            return None if fits else f"{value!r} is not {node.size} bytes"
        case RecordType():
            return _record_problem(node, value)
    raise AssertionError(node)


def _record_problem(node: RecordType, value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"{value!r} is not a record"
    for one in node.fields:
        if one.name in value:
            problem = default_problem(one.type, value[one.name])
            if problem is not None:
                return f"field {one.name!r}: {problem}"
        elif one.default is MISSING:
            return f"field {one.name!r} has no value"
    return None


def _fits(name: str, value: Any) -> bool:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return is_int and -_INT <= value < _INT
        case "long":
            return is_int and -_LONG <= value < _LONG
        case "float" | "double":
            return is_int or (isinstance(value, float) and math.isfinite(value))
        case "string":
            return isinstance(value, str)
        case "bytes":
            return isinstance(value, str) and all(ord(letter) < 256 for letter in value)
    raise AssertionError(name)
