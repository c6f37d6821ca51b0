"""Codec: Avro schemas -> schemas of Connect, as Confluent's AvroConverter maps them.

A union of several types is a struct with an optional field for each. An enum is text with its symbols as parameters.
Source: io.confluent.connect.avro.AvroData (toConnectSchema).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import fastavro
from msgspec import structs

from barnabas.registry.columns.avro_types import FastavroSchema, nullable, type_name
from barnabas.spark.connectors.connect_schemas import (
    DECIMAL_NAME,
    DECIMAL_PRECISION,
    DECIMAL_SCALE,
    ConnectField,
    ConnectSchema,
    ConnectType,
)
from barnabas.spark.connectors.converters.avro_schemas import (
    DEFAULT_AVRO_FORM,
    ENTRY,
    ENTRY_MARK,
    ENUM,
    ENUM_DEFAULT,
    ENUM_DOC,
    FIELD_DEFAULT,
    FIELD_DOC,
    MEANINGS,
    NAMESPACE,
    PRECISION,
    RECORD_DOC,
    UNION,
    UNNAMED,
    AvroForm,
)
from barnabas.spark.connectors.json_schemas import DEPTH_MAX, ConnectSchemaError

MEANING: Final = "connectMeaning"
"""The attribute under which `logicalType` is kept in a parsed schema, so that values stay numbers and bytes."""

_CONNECT: Final = {
    "boolean": ConnectType.BOOLEAN,
    "int": ConnectType.INT32,
    "long": ConnectType.INT64,
    "float": ConnectType.FLOAT32,
    "double": ConnectType.FLOAT64,
    "string": ConnectType.STRING,
    "bytes": ConnectType.BYTES,
    "fixed": ConnectType.BYTES,
    "enum": ConnectType.STRING,
}
_SMALL: Final = {"int8": ConnectType.INT8, "int16": ConnectType.INT16}
_PARTS: Final = ("type", "fields", "items", "values")


def load_numbers(text: str, *others: str) -> FastavroSchema:
    """Parse a schema and those to which it refers, with logical types under MEANING, so that values stay numbers."""
    named: dict[str, Any] = {}
    try:
        for other in others:
            fastavro.parse_schema(_kept(other), named_schemas=named)
        return FastavroSchema(fastavro.parse_schema(_kept(text), named_schemas=named), named)
    except (fastavro.schema.SchemaParseException, KeyError, TypeError) as error:
        raise ConnectSchemaError(f"the Avro schema cannot be read: {error}") from error


def _kept(text: str) -> Any:
    try:
        return _without_logical(json.loads(text))
    except ValueError:
        return text  # the name of a type without quotation marks


def _without_logical(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_logical(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: _without_logical(one) if name in _PARTS else one for name, one in part.items()}
    if "logicalType" in made:
        made[MEANING] = made.pop("logicalType")
    return made


def schema_of_avro(avro: FastavroSchema, form: AvroForm = DEFAULT_AVRO_FORM) -> ConnectSchema:
    """The schema of Connect for a parsed Avro schema, whose logical types are under MEANING. Raises ConnectSchemaError
    for types that contain themselves, and for a schema that is null.
    """
    return _FromAvro(avro, form).schema(avro.parsed, ())


class _FromAvro:
    def __init__(self, avro: FastavroSchema, form: AvroForm) -> None:
        self._avro = avro
        self._form = form

    def schema(
        self, part: Any, within: tuple[str, ...], *, default: Any = None, optional: bool = False
    ) -> ConnectSchema:
        """`default` is that of the record's field which has this type."""
        if len(within) > DEPTH_MAX:
            raise ConnectSchemaError(f"the Avro schema is nested more than {DEPTH_MAX} levels deep")
        branch, inner = nullable(part)
        if branch >= 0:
            return self.schema(inner, within, optional=True)
        part = self._avro.resolve(part)
        kind = type_name(part)
        if kind == "union":
            return self._union(part, within)
        if kind == "null":
            raise ConnectSchemaError("the Avro schema null stands alone, and Connect has no such type")
        attributes: Mapping[str, Any] = part if isinstance(part, dict) else {}
        if kind in ("record", "error", "enum", "fixed") and part["name"] in within:
            raise ConnectSchemaError(f"the Avro record {part['name']} contains itself, and no column can hold that")
        made = self._base(kind, attributes, (*within, attributes.get("name", "")))
        return self._annotated(made, kind, attributes, default, optional)

    def _base(self, kind: str, part: Mapping[str, Any], within: tuple[str, ...]) -> ConnectSchema:
        meaning = part.get(MEANING)
        if kind in ("record", "error"):
            fields: list[ConnectField] = []
            parameters: dict[str, str] = {}
            if self._form.metadata and part.get("doc") is not None:
                parameters[RECORD_DOC] = part["doc"]
            for one in part["fields"]:
                if self._form.metadata and one.get("doc") is not None:
                    parameters[FIELD_DOC + one["name"]] = one["doc"]
                schema = self.schema(one["type"], within, default=one.get("default"))
                fields.append(ConnectField(one["name"], schema))
            return ConnectSchema(ConnectType.STRUCT, parameters=parameters, fields=tuple(fields))
        if kind == "array":
            return self._array(part, within)
        if kind == "map":
            text = ConnectSchema(ConnectType.STRING)
            return ConnectSchema(ConnectType.MAP, keys=text, items=self.schema(part["values"], within))
        if kind in ("bytes", "fixed") and meaning == "decimal":
            parameters = {DECIMAL_SCALE: str(part.get("scale", 0))}
            if part.get("precision", PRECISION) != PRECISION:
                parameters[DECIMAL_PRECISION] = str(part["precision"])
            return ConnectSchema(ConnectType.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)
        if (kind, meaning) in MEANINGS:
            name = MEANINGS[kind, str(meaning)][0]
            return ConnectSchema(_CONNECT[kind], name=name, version=1)
        if kind == "enum":
            return ConnectSchema(ConnectType.STRING, parameters=self._enum(part))
        small = _SMALL.get(part.get("connect.type", "")) if kind == "int" and meaning is None else None
        return ConnectSchema(small or _CONNECT[kind])

    def _enum(self, part: Mapping[str, Any]) -> dict[str, str]:
        short = part["name"].rpartition(".")[2]
        found: dict[str, str] = {}
        if self._form.metadata and part.get("doc") is not None:
            found[ENUM_DOC + short] = part["doc"]
        if self._form.metadata and part.get("default") is not None:
            found[ENUM_DEFAULT + short] = part["default"]
        return found | {ENUM: part["name"]} | {f"{ENUM}.{symbol}": symbol for symbol in part["symbols"]}

    def _array(self, part: Mapping[str, Any], within: tuple[str, ...]) -> ConnectSchema:
        items = self._avro.resolve(part["items"])
        if is_entry(items):
            types = {one["name"]: one["type"] for one in items["fields"]}
            if types.keys() != {"key", "value"}:
                raise ConnectSchemaError(f"the record {items['name']} of a map has other fields than key and value")
            inner = (*within, items["name"])
            key, value = self.schema(types["key"], inner), self.schema(types["value"], inner)
            return ConnectSchema(ConnectType.MAP, keys=key, items=value)
        return ConnectSchema(ConnectType.ARRAY, items=self.schema(part["items"], within))

    def _union(self, part: list[Any], within: tuple[str, ...]) -> ConnectSchema:
        fields: list[ConnectField] = []
        for one in part:
            resolved = self._avro.resolve(one)
            if type_name(resolved) != "null":
                name = self._branch_name(resolved)
                if any(name == known.name for known in fields):
                    raise ConnectSchemaError(
                        f"two types of a union have the name {name}: set enhanced.avro.schema.support=true"
                    )
                fields.append(ConnectField(name, self.schema(one, within, optional=True)))
        optional = any(type_name(one) == "null" for one in part)
        return ConnectSchema(ConnectType.STRUCT, optional, UNION, fields=tuple(fields))

    def _branch_name(self, part: Any) -> str:
        kind = type_name(part)
        if kind not in ("record", "error", "enum"):
            return kind
        full: str = part["name"]
        return full if self._form.enhanced else full.rpartition(".")[2]

    def _annotated(
        self, made: ConnectSchema, kind: str, part: Mapping[str, Any], default: Any, optional: bool
    ) -> ConnectSchema:
        parameters = dict(made.parameters)
        if self._form.metadata:
            parameters |= {str(name): str(text) for name, text in (part.get("connect.parameters") or {}).items()}
        parameters |= {name: str(text) for name, text in part.items() if name.startswith("avro")}
        given = part.get("connect.default")
        if default is None:
            default = given
        elif given is None:
            parameters[FIELD_DEFAULT] = "true"
        name = part.get("connect.name")
        if name is None and kind in ("record", "error", "enum"):
            name = part["name"]
        if name is not None and re.fullmatch(rf"{re.escape(NAMESPACE)}\.{UNNAMED}\d*", name):
            name = None
        version = part.get("connect.version")
        return structs.replace(
            made,
            optional=optional,
            name=made.name or name,
            version=version if isinstance(version, int) and made.version is None else made.version,
            doc=part.get("connect.doc") if self._form.metadata else None,
            parameters=parameters,
            default=None if default is None else json_default(made, default),
        )


def is_entry(part: Any) -> bool:
    """Whether an Avro type is the record of an entry of a map."""
    if type_name(part) != "record":
        return False
    return bool(part["name"] == f"{NAMESPACE}.{ENTRY}" or part.get(ENTRY_MARK) == ENTRY)


def json_default(schema: ConnectSchema, value: Any) -> Any:
    """A default of Avro as `ConnectSchema.default` has it: bytes are base64."""
    if value is None:
        return None
    match schema.type:
        case ConnectType.STRUCT if isinstance(value, dict):
            return {part.name: json_default(part.schema, value.get(part.name)) for part in schema.fields}
        case ConnectType.ARRAY if isinstance(value, list):
            assert schema.items is not None
            return [json_default(schema.items, one) for one in value]
        case ConnectType.MAP if isinstance(value, dict):
            assert schema.items is not None
            return {key: json_default(schema.items, one) for key, one in value.items()}
        case ConnectType.BYTES if isinstance(value, str):
            return base64.b64encode(value.encode("latin-1", "replace")).decode()
        case _:
            return value
