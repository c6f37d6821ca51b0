"""Codec: Arrow types as Avro schemas, for values whose topic has no schema yet.

Every field may be null, and is null by default, so that fields can be added and removed later. Records in fields are
named after their path.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

_SCALARS = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def avro_schema_of(kind: Any, name: str) -> str:
    """The Avro schema of values of type `kind`; a record is called `name`. Raises ValueError for a type that Avro
    does not have.
    """
    return json.dumps(_schema(kind, avro_name(name)))


def avro_name(text: str) -> str:
    """`text` as an Avro name: other characters than letters, digits and underscores become underscores."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return found if re.match(r"[A-Za-z_]", found) else f"_{found}"


def _schema(kind: Any, name: str) -> Any:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pa.types.is_struct(kind):
        for field in kind:
            if avro_name(field.name) != field.name:
                raise ValueError(f"{field.name!r} is not a name in Avro: letters, digits and underscores")
        fields = [
            {"name": field.name, "type": ["null", _schema(field.type, f"{name}_{field.name}")], "default": None}
            for field in kind
        ]
        return {"type": "record", "name": name, "fields": fields}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _schema(kind.value_type, f"{name}_item")]}
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise ValueError("the keys of a map in Avro are strings")
        return {"type": "map", "values": ["null", _schema(kind.item_type, f"{name}_value")]}
    if pa.types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(kind):
        meaning = "local-timestamp-micros" if kind.tz is None else "timestamp-micros"
        return {"type": "long", "logicalType": meaning}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    raise ValueError(f"Avro has no type for {kind}")
