"""Codec: schemas of Connect -> Avro schemas, as Confluent's AvroConverter maps them.

    struct a.Value              record Value in the namespace a
    int8, int16, int32          int; connect.type says which
    Decimal, Date, Time, ..     bytes, int, long with a logicalType
    map                         map, or an array of records of key and value
    optional                    ["null", type], or [type, "null"] with a default
    text with symbols           enum (enhanced.avro.schema.support)

What Avro has no place for is in the attributes connect.name, connect.version, connect.doc, connect.parameters and
connect.default. A union of several types is a struct with one optional field per type. The attributes come in the
order of AvroConverter, so that a registry which has its schemas gives equal ones the same id.
`avro_parsing.py` has the other direction. Source: io.confluent.connect.avro.AvroData (fromConnectSchema).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus

from msgspec import Struct, structs

from barnabas.spark.connectors.connect_schemas import (
    DATE_NAME,
    DECIMAL_NAME,
    DECIMAL_PRECISION,
    DECIMAL_SCALE,
    TIME_NAME,
    TIMESTAMP_NAME,
    ConnectSchema,
    ConnectType,
)
from barnabas.spark.connectors.json_schemas import ConnectSchemaError

NAMESPACE: Final = "io.confluent.connect.avro"
UNION: Final = f"{NAMESPACE}.Union"
ENUM: Final = f"{NAMESPACE}.Enum"

UNNAMED: Final = "ConnectDefault"
ENTRY: Final = "MapEntry"
ENTRY_MARK: Final = "connect.internal.type"
RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
ENUM_DOC: Final = f"{NAMESPACE}.enum.doc."
ENUM_DEFAULT: Final = f"{NAMESPACE}.enum.default."
FIELD_DEFAULT: Final = f"{NAMESPACE}.field.default"
PRECISION: Final = 64
"""The precision of a decimal that says none."""
_PRIMITIVES: Final = {
    ConnectType.BOOLEAN: "boolean",
    ConnectType.INT8: "int",
    ConnectType.INT16: "int",
    ConnectType.INT32: "int",
    ConnectType.INT64: "long",
    ConnectType.FLOAT32: "float",
    ConnectType.FLOAT64: "double",
    ConnectType.STRING: "string",
    ConnectType.BYTES: "bytes",
}
MEANINGS: Final = {
    ("int", "date"): (DATE_NAME, "date"),
    ("int", "time-millis"): (TIME_NAME, "time-millis"),
    ("long", "timestamp-millis"): (TIMESTAMP_NAME, "timestamp-millis"),
}
_LOGICAL: Final = dict(MEANINGS.values())


class AvroForm(Struct, frozen=True):
    """The options of AvroConverter that change schemas and values."""

    metadata: bool = True
    """connect.meta.data: write the attributes connect.*."""
    enhanced: bool = False
    """enhanced.avro.schema.support: enums stay enums, and types in unions have full names."""
    scrubs: bool = False
    """scrub.invalid.names: replace characters that names in Avro cannot have."""
    optional_keys: bool = False
    """allow.optional.map.keys: maps with optional texts as keys are maps in Avro, too."""
    keeps_nulls: bool = False
    """ignore.default.for.nullables: write null, and not the default, for a null."""


DEFAULT_AVRO_FORM: Final = AvroForm()


def avro_of_schema(schema: ConnectSchema, form: AvroForm = DEFAULT_AVRO_FORM) -> Any:
    """The Avro schema as a JSON value. Raises ConnectSchemaError for what Avro cannot say."""
    return _ToAvro(form).schema(schema)


class _ToAvro:
    def __init__(self, form: AvroForm) -> None:
        self._form = form
        self._known: dict[str, ConnectSchema] = {}
        self._numbers: dict[str, int] = {}

    def schema(self, schema: ConnectSchema) -> Any:
        if schema.type is ConnectType.STRUCT and schema.name == UNION:
            parts = [self.schema(structs.replace(part.schema, optional=False)) for part in schema.fields]
            return ["null", *parts] if schema.optional else parts
        if not schema.optional:
            return self._base(schema)
        base = self._base(structs.replace(schema, optional=False))
        has_default = schema.default is not None and schema.type is not ConnectType.STRUCT
        return [base, "null"] if has_default else ["null", base]

    def _base(self, schema: ConnectSchema) -> Any:
        match schema.type:
            case ConnectType.STRUCT:
                full = self._full_name(schema.name, UNNAMED)
                if full in self._known:
                    if self._known[full] != schema:
                        raise ConnectSchemaError(
                            f"two structs have the name {full} and are not equal, which Avro does not allow: rename one"
                            " with the transform SetSchemaMetadata"
                        )
                    return full
                self._known[full] = schema
                made = self._record(full, schema)
            case ConnectType.ARRAY:
                assert schema.items is not None
                made = {"type": "array", "items": self.schema(schema.items)}
            case ConnectType.MAP:
                made = self._map(schema)
            case ConnectType.STRING if self._form.enhanced and ENUM in schema.parameters:
                return self._enum(schema)
            case ConnectType.BYTES if schema.name == DECIMAL_NAME:
                made = {"type": "bytes", **_digits(schema)}
            case _:
                made = {"type": _PRIMITIVES[schema.type]}
        made |= self._attributes(schema)
        return made["type"] if len(made) == 1 else made

    def _attributes(self, schema: ConnectSchema) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._form.metadata:
            if schema.doc is not None:
                found["connect.doc"] = schema.doc
            if schema.version is not None:
                found["connect.version"] = schema.version
            parameters = {name: text for name, text in schema.parameters.items() if name != FIELD_DEFAULT}
            if parameters:
                found["connect.parameters"] = parameters
            if schema.default is not None and FIELD_DEFAULT not in schema.parameters:
                found["connect.default"] = avro_default(schema, schema.default)
            if schema.name is not None:
                found["connect.name"] = schema.name
            if schema.type in (ConnectType.INT8, ConnectType.INT16):
                found["connect.type"] = schema.type.value
        if schema.name == DECIMAL_NAME:
            found["logicalType"] = "decimal"
        elif schema.name in _LOGICAL:
            found["logicalType"] = _LOGICAL[schema.name]
        return found | {name: text for name, text in schema.parameters.items() if name.startswith("avro")}

    def _record(self, full: str, schema: ConnectSchema) -> dict[str, Any]:
        namespace, _, name = full.rpartition(".")
        made: dict[str, Any] = {"type": "record", "name": name, "namespace": namespace}
        if RECORD_DOC in schema.parameters:
            made["doc"] = schema.parameters[RECORD_DOC]
        made["fields"] = [
            self._field(part.name, part.schema, schema.parameters.get(FIELD_DOC + part.name)) for part in schema.fields
        ]
        return made

    def _field(self, name: str, schema: ConnectSchema, doc: str | None = None) -> dict[str, Any]:
        made: dict[str, Any] = {"name": self._scrubbed(name), "type": self.schema(schema)}
        if doc is not None:
            made["doc"] = doc
        if schema.default is not None:
            made["default"] = avro_default(schema, schema.default)
        elif schema.optional:
            made["default"] = None
        return made

    def _map(self, schema: ConnectSchema) -> dict[str, Any]:
        assert schema.keys is not None
        assert schema.items is not None
        if has_text_keys(schema, self._form):
            return {"type": "map", "values": self.schema(schema.items)}
        full = self._full_name(schema.name, ENTRY)
        namespace, _, name = full.rpartition(".")
        entry: dict[str, Any] = {"type": "record", "name": name, "namespace": namespace}
        entry["fields"] = [self._field("key", schema.keys), self._field("value", schema.items)]
        if full != f"{NAMESPACE}.{ENTRY}":
            entry[ENTRY_MARK] = ENTRY
        return {"type": "array", "items": entry}

    def _enum(self, schema: ConnectSchema) -> Any:
        full = schema.parameters[ENUM]
        if full in self._known:
            return full
        self._known[full] = schema
        namespace, _, name = full.rpartition(".")
        symbols = [text for key, text in schema.parameters.items() if key.startswith(f"{ENUM}.")]
        made: dict[str, Any] = {"type": "enum", "name": name, "namespace": namespace}
        if ENUM_DOC + name in schema.parameters:
            made["doc"] = schema.parameters[ENUM_DOC + name]
        made["symbols"] = symbols
        if ENUM_DEFAULT + name in schema.parameters:
            made["default"] = schema.parameters[ENUM_DEFAULT + name]
        return made | self._attributes(schema)

    def _full_name(self, name: str | None, otherwise: str) -> str:
        """The name of a record. Those without a name get names with numbers, from the second on."""
        if name:
            return ".".join(map(self._scrubbed, name.split("."))) if self._form.scrubs else name
        number = self._numbers[otherwise] = self._numbers.get(otherwise, 0) + 1
        return f"{NAMESPACE}.{otherwise}{number if number > 1 else ''}"

    def _scrubbed(self, name: str) -> str:
        if not self._form.scrubs:
            return name
        encoded = quote_plus(name, safe="*").replace("~", "%7E")  # as java.net.URLEncoder
        encoded = encoded if re.match("[A-Za-z_]", encoded) else f"x{encoded}"
        return re.sub("[^A-Za-z0-9_]", "_", encoded)


def _digits(schema: ConnectSchema) -> dict[str, int]:
    parameters = schema.parameters
    try:
        return {
            "scale": int(parameters[DECIMAL_SCALE]),
            "precision": int(parameters.get(DECIMAL_PRECISION, PRECISION)),
        }
    except (KeyError, ValueError) as error:
        raise ConnectSchemaError(f"a decimal needs the parameter scale, a number: {dict(parameters)}") from error


def has_text_keys(schema: ConnectSchema, form: AvroForm = DEFAULT_AVRO_FORM) -> bool:
    """Whether a map of Connect is a map in Avro, too."""
    assert schema.keys is not None
    return schema.keys.type is ConnectType.STRING and (form.optional_keys or not schema.keys.optional)


def avro_default(schema: ConnectSchema, value: Any) -> Any:
    """A default as Avro has it in JSON: bytes are a text whose code points are the bytes."""
    if value is None:
        return None
    match schema.type:
        case ConnectType.STRUCT:
            return {part.name: avro_default(part.schema, value.get(part.name)) for part in schema.fields}
        case ConnectType.ARRAY:
            assert schema.items is not None
            return [avro_default(schema.items, one) for one in value]
        case ConnectType.MAP:
            assert schema.keys is not None
            assert schema.items is not None
            if isinstance(value, Mapping):
                return {key: avro_default(schema.items, one) for key, one in value.items()}
            return [[avro_default(schema.keys, key), avro_default(schema.items, one)] for key, one in value]
        case ConnectType.BYTES:
            try:
                return base64.b64decode(value, validate=True).decode("latin-1")
            except (binascii.Error, TypeError, ValueError) as error:
                raise ConnectSchemaError(f"the default {value!r} of a field of bytes is not base64") from error
        case ConnectType.FLOAT32 | ConnectType.FLOAT64:
            return float(value)
        case _:
            return value
