"""Table: the sixteen transforms and three predicates of Kafka Connect, with their configuration keys.

The names, types and defaults are those of the `CONFIG_DEF` of each class in the package
`org.apache.kafka.connect.transforms` of Apache Kafka 4.0. A transform with variants is configured as `Name$Key` or
`Name$Value`, which says whether the transform works on the keys or on the values of the records.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

TRANSFORMS_PACKAGE: Final = "org.apache.kafka.connect.transforms."
PREDICATES_PACKAGE: Final = "org.apache.kafka.connect.transforms.predicates."


class KeyKind(StrEnum):
    """The type of a configuration value, with Connect's names of `ConfigDef.Type`."""

    STRING = "STRING"
    LIST = "LIST"
    BOOLEAN = "BOOLEAN"
    INT = "INT"


class TransformKey(Struct, frozen=True):
    """One configuration key of a transform. A `default` of None with `required` false means: not set."""

    name: str
    kind: KeyKind = KeyKind.STRING
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""


class Definition(Struct, frozen=True):
    """A transform or predicate: its class name without the package, its keys, and if it has $Key and $Value."""

    name: str
    keys: tuple[TransformKey, ...] = ()
    variants: bool = True


_DEFAULTS = TransformKey(
    "replace.null.with.default",
    KeyKind.BOOLEAN,
    default="true",
    doc="Accepted without effect: columns of Arrow have no default values that could replace nulls.",
)


def _string(name: str, doc: str, default: str | None = None) -> TransformKey:
    return TransformKey(name, default=default, doc=doc)


def _required(name: str, doc: str, kind: KeyKind = KeyKind.STRING, choices: tuple[str, ...] = ()) -> TransformKey:
    return TransformKey(name, kind, required=True, choices=choices, doc=doc)


_LIST = KeyKind.LIST

TRANSFORMS: Final = (
    Definition("Cast", (_required("spec", "field:type pairs, or one type for the whole key or value", _LIST),)),
    Definition("DropHeaders", (_required("headers", "names of the headers to remove", _LIST),), variants=False),
    Definition(
        "ExtractField",
        (
            _required("field", "the field that becomes the whole key or value"),
            TransformKey(
                "field.syntax.version",
                default="V1",
                choices=("V1", "V2"),
                doc="V1: a field name; V2: a path with dots",
            ),
            _DEFAULTS,
        ),
    ),
    Definition("Filter", variants=False),
    Definition("Flatten", (_string("delimiter", "text between the names of the levels", "."),)),
    Definition(
        "HeaderFrom",
        (
            _required("fields", "names of the fields to put into headers", _LIST),
            _required("headers", "names of the headers, one for each field", _LIST),
            _required("operation", "if the fields stay in the record", choices=("move", "copy")),
            _DEFAULTS,
        ),
    ),
    Definition("HoistField", (_required("field", "name of the only field of the new key or value"),)),
    Definition(
        "InsertField",
        (
            _string("topic.field", "field for the topic; ends in ! if required, in ? if optional (the default)"),
            _string("partition.field", "field for the partition"),
            _string("offset.field", "field for the offset; only with records that were read from a topic"),
            _string("timestamp.field", "field for the timestamp of the record"),
            _string("static.field", "field for the value of static.value"),
            _string("static.value", "value of static.field"),
            _DEFAULTS,
        ),
    ),
    Definition(
        "InsertHeader",
        (_required("header", "name of the header"), _required("value.literal", "value of the header")),
        variants=False,
    ),
    Definition(
        "MaskField",
        (
            _required("fields", "names of the fields to mask", _LIST),
            _string("replacement", "value in place of 0 or the empty text, for numbers and texts only"),
            _DEFAULTS,
        ),
    ),
    Definition(
        "RegexRouter",
        (
            _required("regex", "Java regular expression that matches the whole topic name"),
            _required("replacement", "the new topic name; $1 or ${name} stands for a group"),
        ),
        variants=False,
    ),
    Definition(
        "ReplaceField",
        (
            TransformKey("exclude", _LIST, default="", doc="fields to drop; wins over include"),
            TransformKey("include", _LIST, default="", doc="fields to keep; all if empty"),
            TransformKey("renames", _LIST, default="", doc="old:new pairs"),
            _DEFAULTS,
        ),
    ),
    Definition(
        "SetSchemaMetadata",
        (
            _string("schema.name", "name of the schema"),
            TransformKey("schema.version", KeyKind.INT, doc="version of the schema"),
            _DEFAULTS,
        ),
    ),
    Definition(
        "TimestampConverter",
        (
            _string("field", "the field with the timestamp; empty for the whole key or value", ""),
            _required(
                "target.type",
                "type of the result",
                choices=("string", "unix", "Date", "Time", "Timestamp"),
            ),
            _string("format", "pattern of java.text.SimpleDateFormat, for texts", ""),
            TransformKey(
                "unix.precision",
                default="milliseconds",
                choices=("seconds", "milliseconds", "microseconds", "nanoseconds"),
                doc="unit of integers",
            ),
            _DEFAULTS,
        ),
    ),
    Definition(
        "TimestampRouter",
        (
            _string("topic.format", "the new topic name", "${topic}-${timestamp}"),
            _string("timestamp.format", "pattern of java.text.SimpleDateFormat", "yyyyMMdd"),
        ),
        variants=False,
    ),
    Definition(
        "ValueToKey",
        (_required("fields", "fields of the value that become the key", _LIST), _DEFAULTS),
        variants=False,
    ),
)
"""All transforms, in the order of their names."""

PREDICATES: Final = (
    Definition("HasHeaderKey", (_required("name", "name of the header"),), variants=False),
    Definition("RecordIsTombstone", variants=False),
    Definition(
        "TopicNameMatches",
        (_required("pattern", "Java regular expression that matches the whole topic name"),),
        variants=False,
    ),
)
"""All predicates, in the order of their names."""
