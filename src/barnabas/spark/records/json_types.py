"""Codec: JSON Schema as Arrow types, and Arrow types as JSON Schema.

    object with properties   struct         array            list of items
    object without           map of additionalProperties
    integer, number          int64, double  string, boolean  the same

A property that may be null, or one of several alternatives of which one is null, has the type of the other. Times and
decimals are strings in JSON.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

_SCALARS = {"integer": pa.int64(), "number": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


def arrow_of_json_schema(text: str) -> Any:
    """The Arrow type of the documents that a JSON Schema describes. Raises ValueError if there is no single type."""
    document = json.loads(text)
    return _Reader(document).read(document, "the schema", ())


class _Reader:
    def __init__(self, document: Any) -> None:
        self._document = document

    def read(self, part: Any, path: str, within: tuple[str, ...]) -> Any:
        if not isinstance(part, dict):
            raise ValueError(f"{path} describes no type")
        reference = part.get("$ref")
        if reference is not None:
            if reference in within:
                raise ValueError(f"{path} contains itself")
            return self.read(self._target(reference, path), path, (*within, reference))
        for word in ("oneOf", "anyOf"):
            if word in part:
                return self.read(_only_one(part[word], path), path, within)
        kind = part.get("type")
        if isinstance(kind, list):
            others = [one for one in kind if one != "null"]
            if len(others) != 1:
                raise ValueError(f"{path} has several types")
            kind = others[0]
        if kind is None and "properties" in part:
            kind = "object"
        if kind is None and isinstance(part.get("enum"), list):
            kind = "string"
        if kind == "object":
            return self._object(part, path, within)
        if kind == "array":
            return pa.list_(self.read(part.get("items"), f"{path}/items", within))
        if kind not in _SCALARS:
            raise ValueError(f"{path} has no type, or one that is not known: {kind!r}")
        return _SCALARS[kind]

    def _object(self, part: Any, path: str, within: tuple[str, ...]) -> Any:
        properties = part.get("properties")
        if properties:
            return pa.struct(
                [
                    pa.field(name, self.read(one, f"{path}/properties/{name}", within))
                    for name, one in properties.items()
                ]
            )
        return pa.map_(pa.string(), self.read(part.get("additionalProperties"), f"{path}/additionalProperties", within))

    def _target(self, reference: str, path: str) -> Any:
        found = self._document
        if not reference.startswith("#"):
            raise ValueError(f"{path} refers to another schema, {reference}")
        for step in reference[1:].split("/")[1:]:
            found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise ValueError(f"{path} refers to {reference}, which does not exist")
        return found


def _only_one(alternatives: Any, path: str) -> Any:
    others = [one for one in alternatives if not (isinstance(one, dict) and one.get("type") == "null")]
    if len(others) != 1:
        raise ValueError(f"{path} has several alternatives")
    return others[0]


def json_schema_of(kind: Any, title: str) -> str:
    """The JSON Schema (draft 7) of documents of an Arrow type. No property is required, and none is null: a property
    without a value is left out. Items of lists and entries of maps are null without one, if the type has such.
    """
    document = {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **_schema(kind)}
    return json.dumps(document)


def _schema(kind: Any) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {field.name: _schema(field.type) for field in kind}}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _item_schema(kind.item_field)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _item_schema(kind.value_field)}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind):
        return {"type": "number"}
    return {"type": "string"}


def _item_schema(item: Any) -> dict[str, Any]:
    """As Connect's JsonSchemaConverter writes a schema that is optional."""
    found = _schema(item.type)
    return {"oneOf": [{"type": "null"}, found]} if item.nullable else found
