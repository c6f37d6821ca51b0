"""Codec: schemas of Connect <-> JSON, and JSON texts with the bytes that Jackson writes.

    {"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"a.Value"}

Keys come in the order of JsonConverter: type, fields, items or keys and values, optional, name, version, doc,
parameters, default, field. Source: org.apache.kafka.connect.json.JsonConverter (asJsonSchema, asConnectSchema), and
Jackson's UTF8JsonGenerator, which writes characters beyond the Basic Multilingual Plane as two escapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from barnabas.client.columns.byte_column import np
from barnabas.spark.connectors.connect_schemas import ConnectField, ConnectSchema, ConnectType

DEPTH_MAX: Final = 100

_SPECIAL: Final = re.compile('["\\\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class ConnectSchemaError(ValueError):
    """A schema of Connect cannot be read, or has no form in Arrow, JSON or Avro."""


def escaped(text: str) -> str:
    """The text between the quotation marks of a JSON string."""
    return _SPECIAL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    if letter in _SHORT:
        return _SHORT[letter]
    code = ord(letter)
    if code < 0x20:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def float_text(value: float, *, single: bool = False) -> str:
    """A number as Java prints it since version 19: the shortest digits, with an exponent below 0.001 and from
    10,000,000 on. A number for which one digit is enough has the two digits nearest to it: 4.9E-324, and not 5.0E-324.
    """
    if not math.isfinite(value):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    number = np.float32(value) if single else np.float64(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(np.format_float_positional(number, unique=True, trim="0"))
    digits, _, exponent = np.format_float_scientific(number, unique=True, trim="0").partition("e")
    if digits.endswith(".0"):
        digits, _, exponent = f"{float(number):.1e}".partition("e")
    return f"{digits}E{int(exponent)}"


def compact_json(value: Any) -> str:
    """A JSON value without spaces, with the bytes that Jackson writes."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{escaped(value)}"'
        case float():
            return float_text(value)
        case dict():
            return "{" + ",".join(f'"{escaped(key)}":{compact_json(item)}' for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(compact_json, value)) + "]"
        case _:
            return str(value)


def json_schema(schema: ConnectSchema, name: str | None = None) -> dict[str, Any]:
    """The schema as a JSON object with its keys in JsonConverter's order. `name` is that of a struct's field."""
    result: dict[str, Any] = {"type": schema.type.value}
    if schema.type is ConnectType.STRUCT:
        result["fields"] = [json_schema(part.schema, part.name) for part in schema.fields]
    elif schema.type is ConnectType.ARRAY:
        assert schema.items is not None
        result["items"] = json_schema(schema.items)
    elif schema.type is ConnectType.MAP:
        assert schema.keys is not None
        assert schema.items is not None
        result["keys"] = json_schema(schema.keys)
        result["values"] = json_schema(schema.items)
    result["optional"] = schema.optional
    if schema.name is not None:
        result["name"] = schema.name
    if schema.version is not None:
        result["version"] = schema.version
    if schema.doc is not None:
        result["doc"] = schema.doc
    if schema.parameters:
        result["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        result["default"] = schema.default
    if name is not None:
        result["field"] = name
    return result


def parse_schema(text: bytes) -> ConnectSchema | None:
    """The schema of a `schema` field; None for null. Raises ConnectSchemaError."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConnectSchemaError(f"the schema is not JSON: {error}") from None
    return None if found is None else _schema(found, 0)


def _schema(value: Any, depth: int) -> ConnectSchema:
    if depth > DEPTH_MAX:
        raise ConnectSchemaError(f"the schema is nested more than {DEPTH_MAX} levels deep")
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise ConnectSchemaError("a schema is an object with a field type")
    try:
        kind = ConnectType(value["type"])
    except ValueError:
        raise ConnectSchemaError(f"there is no type {value['type']!r}: it is one of {', '.join(ConnectType)}") from None
    fields: tuple[ConnectField, ...] = ()
    keys = items = None
    if kind is ConnectType.STRUCT:
        if not isinstance(value.get("fields"), list):
            raise ConnectSchemaError("the schema of a struct has a list named fields")
        fields = tuple(_field(part, depth) for part in value["fields"])
    elif kind is ConnectType.ARRAY:
        items = _schema(value.get("items"), depth + 1)
    elif kind is ConnectType.MAP:
        keys, items = _schema(value.get("keys"), depth + 1), _schema(value.get("values"), depth + 1)
    version = value.get("version")
    return ConnectSchema(
        kind,
        value.get("optional") is True,
        _text(value.get("name")),
        version if isinstance(version, int) and not isinstance(version, bool) else None,
        _text(value.get("doc")),
        _parameters(value.get("parameters")),
        value.get("default"),
        fields,
        keys,
        items,
    )


def _field(value: Any, depth: int) -> ConnectField:
    if not isinstance(value, dict) or not isinstance(value.get("field"), str):
        raise ConnectSchemaError("the schema of a struct's field has its name in field")
    return ConnectField(value["field"], _schema(value, depth + 1))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _parameters(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return {}
    if not all(isinstance(one, str) for one in value.values()):
        raise ConnectSchemaError("the parameters of a schema are texts")
    return value
