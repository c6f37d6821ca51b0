"""Codec: names of schemas and fields that Avro allows, as Debezium makes them (schema.name.adjustment.mode).

    avro           other characters than letters, digits and underscores become underscores: my-topic -> my_topic
    avro_unicode   they, and underscores, become escapes: my-topic -> my_u002dtopic

Source: io.debezium.schema.SchemaNameAdjuster.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final


class NameAdjustment(StrEnum):
    """schema.name.adjustment.mode and field.name.adjustment.mode."""

    NONE = "none"
    AVRO = "avro"
    AVRO_UNICODE = "avro_unicode"


_NOT_IN_SCHEMAS: Final = re.compile(r"[^A-Za-z0-9_.]")
_NOT_IN_FIELDS: Final = re.compile(r"[^A-Za-z0-9_]")


def adjusted_name(name: str, mode: NameAdjustment, *, is_field: bool = False) -> str:
    """The name of a schema, in which dots stay, or of a field."""
    if mode is NameAdjustment.NONE or not name:
        return name
    wrong = _NOT_IN_FIELDS if is_field else _NOT_IN_SCHEMAS
    if mode is NameAdjustment.AVRO:
        rest = wrong.sub("_", name[1:])
        first = name[0] if re.match("[A-Za-z_]", name) else f"_{name[0]}" if name[0].isdigit() else "_"
        return first + rest
    escaped = "".join(_escape(one) if one == "_" or wrong.match(one) else one for one in name[1:])
    return (name[0] if re.match("[A-Za-z]", name) else _escape(name[0])) + escaped


def _escape(letter: str) -> str:
    return f"_u{ord(letter):04x}"
