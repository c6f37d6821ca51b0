"""Value: schemas of Kafka Connect: types, names, versions, parameters and defaults of keys, values and their fields.

`arrow_fields.py` gives the Arrow field of a schema and the schema of an Arrow field, `json_schemas.py`, and
`converters/avro_schemas.py` with `avro_parsing.py`, their forms in JSON and Avro.
Source: org.apache.kafka.connect.data.Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field, structs

_LOGICAL: Final = "org.apache.kafka.connect.data."
DECIMAL_NAME: Final = _LOGICAL + "Decimal"
DATE_NAME: Final = _LOGICAL + "Date"
TIME_NAME: Final = _LOGICAL + "Time"
TIMESTAMP_NAME: Final = _LOGICAL + "Timestamp"

DECIMAL_SCALE: Final = "scale"
DECIMAL_PRECISION: Final = "connect.decimal.precision"
"""The parameters of a decimal. Connect needs the scale; AvroConverter and Debezium add the precision."""


class ConnectType(StrEnum):
    """Connect's types, by their names in JSON."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


class ConnectField(Struct, frozen=True):
    """A field of a struct."""

    name: str
    schema: ConnectSchema


class ConnectSchema(Struct, frozen=True):
    """A schema of Connect. `fields` belongs to a struct, `items` to an array, `keys` and `items` to a map.

    `default` is a value as JSON has it: a number, a text, a boolean, a list or an object; bytes are base64 text.
    """

    type: ConnectType
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    default: Any = None
    fields: tuple[ConnectField, ...] = ()
    keys: ConnectSchema | None = None
    items: ConnectSchema | None = None

    def as_optional(self) -> ConnectSchema:
        """The same schema, with null allowed."""
        return self if self.optional else structs.replace(self, optional=True)


def struct_schema(
    name: str | None, fields: Mapping[str, ConnectSchema], *, optional: bool = False, version: int | None = None
) -> ConnectSchema:
    """A struct with these fields, in their order."""
    parts = tuple(ConnectField(key, value) for key, value in fields.items())
    return ConnectSchema(ConnectType.STRUCT, optional, name, version, fields=parts)


def decimal_schema(precision: int, scale: int, *, optional: bool = False) -> ConnectSchema:
    """A decimal with the parameters that Debezium gives it."""
    parameters = {DECIMAL_SCALE: str(scale), DECIMAL_PRECISION: str(precision)}
    return ConnectSchema(ConnectType.BYTES, optional, DECIMAL_NAME, 1, parameters=parameters)
