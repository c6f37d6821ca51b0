"""Codec: Avro schemas as Arrow types.

Dates, times and timestamps are decoded as plain numbers and become Arrow's temporal types, which store the same
numbers. Decimals become Arrow's decimals; a uuid remains a string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro

from barnabas.client.columns.byte_column import pa
from barnabas.registry.client import RegistryClient
from barnabas.registry.values import Schema

PRIMITIVES: Final[dict[str, Any]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
MEANINGS: Final[dict[tuple[str, str], Any]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
MEANING: Final = "arrowMeaning"
"""The attribute under which `logicalType` is kept, so that fastavro does not convert values to Python objects."""
_DECIMAL_128_DIGITS: Final = 38


class FastavroSchema:
    """A schema as fastavro parses it, and its named types."""

    def __init__(self, parsed: Any, named: Mapping[str, Any]) -> None:
        self.parsed = parsed
        self.named = named

    def resolve(self, part: Any) -> Any:
        """A part of the schema; the name of a type is replaced by the type."""
        if isinstance(part, str) and part not in PRIMITIVES:
            return self.named[part]
        return part


def load_avro(registry: RegistryClient, schema: Schema) -> FastavroSchema:
    """Parse a schema and the schemas to which it refers."""
    named: dict[str, Any] = {}
    for dependency in registry.dependencies(schema).values():
        fastavro.parse_schema(_load(dependency.text), named_schemas=named)
    return FastavroSchema(fastavro.parse_schema(_load(schema.text), named_schemas=named), named)


def load_avro_text(text: str) -> FastavroSchema:
    """Parse a schema that refers to no other."""
    named: dict[str, Any] = {}
    return FastavroSchema(fastavro.parse_schema(_load(text), named_schemas=named), named)


def type_name(part: Any) -> str:
    """`record`, `array`, ..., or the name of a primitive type; `union` for a list."""
    if isinstance(part, list):
        return "union"
    name: str = part if isinstance(part, str) else part["type"]
    return name


def nullable(part: Any) -> tuple[int, Any]:
    """(index of the null branch, the other branch) for a union of null and one type; (-1, the part itself)
    otherwise.
    """
    if isinstance(part, list) and len(part) == 2:
        for index in (0, 1):
            if type_name(part[index]) == "null":
                return index, part[1 - index]
    return -1, part


def arrow_type(schema: FastavroSchema, part: Any, within: tuple[str, ...] = ()) -> Any:
    """The Arrow type of a column with such values. Raises ValueError if there is none."""
    part = schema.resolve(nullable(part)[1])
    name = type_name(part)
    if name == "union":
        raise ValueError(
            "a union of several types has no column type: read with a reader's schema without this field, "
            "or record by record with AvroDeserializer"
        )
    if name == "record":
        if part["name"] in within:
            raise ValueError(f"{part['name']} contains itself and has no column type: use AvroDeserializer")
        inner = (*within, part["name"])
        return pa.struct([pa.field(f["name"], arrow_type(schema, f["type"], inner)) for f in part["fields"]])
    if name == "array":
        return pa.list_(arrow_type(schema, part["items"], within))
    if name == "map":
        return pa.map_(pa.string(), arrow_type(schema, part["values"], within))
    if name == "enum":
        return pa.string()
    if isinstance(part, dict):
        if part.get("logicalType") == "decimal":
            digits, scale = part["precision"], part.get("scale", 0)
            return (pa.decimal128 if digits <= _DECIMAL_128_DIGITS else pa.decimal256)(digits, scale)
        meaning = MEANINGS.get((name, part.get(MEANING, "")))
        if meaning is not None:
            return meaning
    return pa.binary(part["size"]) if name == "fixed" else PRIMITIVES[name]


def _load(text: str) -> Any:
    try:
        return _keep_numbers(json.loads(text))
    except ValueError:
        return text  # the name of a primitive type without quotes


def _keep_numbers(part: Any) -> Any:
    """Copy a schema with its logical types, except decimals, moved to the attribute MEANING, which fastavro ignores."""
    if isinstance(part, list):
        return [_keep_numbers(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {key: _keep_numbers(value) if key in _SCHEMAS_AT else value for key, value in part.items()}
    if isinstance(kept.get("logicalType"), str) and kept["logicalType"] != "decimal":
        kept[MEANING] = kept.pop("logicalType")
    return kept


_SCHEMAS_AT: Final = ("type", "fields", "items", "values")
