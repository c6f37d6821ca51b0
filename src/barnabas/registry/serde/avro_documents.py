"""Codec: JSON documents <-> the values that fastavro writes and reads.

A document says less than an Avro value. Bytes are base64; decimals, dates and times are text (numbers work, too, as
they are stored). A value of a union is written as it is, or as Avro's JSON encoding has it: `{"string": "x"}`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}
_PLAIN: Final[Mapping[str, tuple[type, str]]] = {
    "null": (type(None), "null"),
    "boolean": (bool, "true or false"),
    "string": (str, "a string"),
}
_PARSERS: Final = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
}


def document_of(value: Any) -> Any:
    """The JSON document of a value that a deserializer returned."""
    return json.loads(json.dumps(value, default=_scalar))


def _scalar(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else str(value)


def avro_value(parsed: Any, document: Any) -> Any:
    """The value of a document for a schema that fastavro has parsed. Raises ValueError that names the field."""
    named = parsed.get("__named_schemas", {}) if isinstance(parsed, dict) else {}
    return _Reader(named).read(parsed, document, "")


class _Reader:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def read(self, schema: Any, document: Any, path: str) -> Any:
        if isinstance(schema, list):
            return self._union(schema, document, path)
        if isinstance(schema, str):
            return (
                self.read(self._named[schema], document, path)
                if schema in self._named
                else _plain(schema, document, path)
            )
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, document, path)
        if kind == "array":
            _check(isinstance(document, list), "an array", document, path)
            return [self.read(schema["items"], item, f"{path}[{i}]") for i, item in enumerate(document)]
        if kind == "map":
            _check(isinstance(document, dict), "a map", document, path)
            return {key: self.read(schema["values"], item, _join(path, key)) for key, item in document.items()}
        if kind == "enum":
            _check(document in schema["symbols"], f"one of {', '.join(schema['symbols'])}", document, path)
            return document
        logical = schema.get("logicalType")
        if logical == "decimal" and isinstance(document, str | int | float):
            try:
                return Decimal(str(document))
            except InvalidOperation:
                raise _wrong("a decimal number", document, path) from None
        if logical in _PARSERS and isinstance(document, str):
            try:
                return _PARSERS[logical](document)
            except ValueError:
                raise _wrong(f"a {logical} in ISO 8601", document, path) from None
        if not isinstance(kind, str):
            return self.read(kind, document, path)
        return _plain("bytes" if kind == "fixed" else kind, document, path)

    def _record(self, schema: Any, document: Any, path: str) -> dict[str, Any]:
        _check(isinstance(document, dict), f"a record {schema['name']}", document, path)
        fields = {field["name"]: field for field in schema["fields"]}
        for name in document:
            if name not in fields:
                raise ValueError(f"{_join(path, name)}: the schema has no such field; it has {', '.join(fields)}")
        found = {}
        for name, field in fields.items():
            if name in document:
                found[name] = self.read(field["type"], document[name], _join(path, name))
            elif "default" in field:
                found[name] = self._default(field["type"], field["default"], _join(path, name))
            else:
                raise ValueError(f"{_join(path, name)}: the field is missing, and has no default")
        return found

    def _default(self, schema: Any, default: Any, path: str) -> Any:
        """The value of a default, which is for the first branch of a union, and has bytes as Latin-1 text."""
        branch = schema[0] if isinstance(schema, list) else schema
        resolved = self._named.get(branch, branch) if isinstance(branch, str) else branch
        kind = resolved if isinstance(resolved, str) else resolved["type"]
        if kind in ("bytes", "fixed"):
            return default.encode("latin-1")
        return self.read(branch, default, path)

    def _union(self, branches: list[Any], document: Any, path: str) -> Any:
        if isinstance(document, dict) and len(document) == 1:
            ((tag, inner),) = document.items()
            for branch in branches:
                if tag == _name(branch) and tag != "null":
                    return self._branch(branch, inner, path)
        problems = []
        for branch in branches:
            try:
                return self._branch(branch, document, path)
            except ValueError as problem:
                problems.append(str(problem))
        raise ValueError("; or ".join(problems[-2:]))

    def _branch(self, branch: Any, document: Any, path: str) -> Any:
        """The value of one branch, with the name of a record, so that fastavro does not choose another one."""
        value = self.read(branch, document, path)
        if isinstance(branch, str):
            return (branch, value) if branch in self._named else value
        return (branch["name"], value) if branch["type"] == "record" else value


def _name(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema.get("name") or schema["type"])


def _plain(kind: str, document: Any, path: str) -> Any:
    if kind == "bytes":
        _check(isinstance(document, str), "bytes in base64", document, path)
        try:
            return base64.b64decode(document, validate=True)
        except binascii.Error:
            raise _wrong("bytes in base64", document, path) from None
    if kind in _INTEGERS:
        limit = _INTEGERS[kind]
        is_number = isinstance(document, int) and not isinstance(document, bool)
        _check(is_number and -limit <= document < limit, f"an {kind}" if kind == "int" else "a long", document, path)
        return document
    if kind in ("float", "double"):
        _check(isinstance(document, int | float) and not isinstance(document, bool), "a number", document, path)
        return float(document)
    python, words = _PLAIN[kind]
    _check(isinstance(document, python), words, document, path)
    return document


def _check(fits: bool, words: str, document: Any, path: str) -> None:
    if not fits:
        raise _wrong(words, document, path)


def _wrong(words: str, document: Any, path: str) -> ValueError:
    shown = json.dumps(document, ensure_ascii=False)
    return ValueError(f"{path or 'the value'}: {shown[:60]} is not {words}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
