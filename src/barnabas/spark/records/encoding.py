"""Shell: runs in a worker: typed columns -> keys and values in their formats, each with the id of its schema.

The schema is the one in the options; else the latest version of the subject; else, if the subject does not exist, one
that is made from the type of the column and registered. Fields are matched by name.
"""

from __future__ import annotations

import base64
import json
import math
import os
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from barnabas.client.errors import SerializationError
from barnabas.registry.columns import AvroColumns
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.http_client import RegistryUnreachableError
from barnabas.registry.serde.protobuf import indexes_of
from barnabas.registry.serde.wire_format import HEADER, MAGIC, encode_indexes
from barnabas.registry.values import RegisteredSchema, Schema
from barnabas.spark.errors import SinkError
from barnabas.spark.records.avro_schemas import avro_name, avro_schema_of
from barnabas.spark.records.formats import PartFormat, RecordFormat, RecordFormats
from barnabas.spark.records.inference import arrow_type_of, message_class
from barnabas.spark.records.json_types import json_schema_of
from barnabas.spark.records.registries import (
    INLINE_ID,
    SCHEMA_TYPES,
    OneSchema,
    given_schema,
    registry_client,
)

Encode = Callable[[Any], Any]
"""A typed column -> a binary column."""

SCHEMA_AGE_MAX_S: Final = 60.0
"""How long a process writes with the same schema before it asks the registry for the latest version again."""
ENCODERS_MAX: Final = 1_000


def encode_records(table: pa.Table, formats: RecordFormats, topic: str) -> pa.Table:
    """The rows of one topic with their typed columns `key` and `value` in binary form; null stays null. Raises
    SinkError for a row or a column that does not fit its schema, and if the registry does not answer.
    """
    for part in formats.typed:
        index = table.schema.get_field_index(part.part)
        if index < 0:
            continue
        column = table.column(index).combine_chunks()
        encode = _encoder(part, formats, topic, column.type)
        try:
            encoded = encode(column)
        except (SerializationError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # of encoders and of casts
            raise SinkError(f"a {part.part} for {topic} cannot be written as {part.format.value}: {error}") from error
        table = table.set_column(index, part.part, encoded)
    return table


def writer_schema(part: PartFormat, formats: RecordFormats, topic: str, kind: Any) -> RegisteredSchema:
    """The schema with which a column of type `kind` is written to a topic; registered, if the options allow it. Raises
    SinkError.
    """
    access = formats.registry
    if access is None:
        return RegisteredSchema("", 0, INLINE_ID, given_schema(part))
    client, subject = registry_client(access), part.subject_of(topic)
    try:
        if access.use_latest or (access.use_latest is None and part.schema is None):
            try:
                return _of_type(client.latest(subject), part)
            except RegistryError as error:
                if error.code not in (Code.SUBJECT_NOT_FOUND, Code.VERSION_NOT_FOUND) or access.use_latest:
                    raise
        schema = given_schema(part) if part.schema is not None else derived_schema(part, kind, subject)
        register = client.register if access.auto_register else client.look_up
        return register(subject, schema, normalize=access.normalize)
    except RegistryError as error:
        raise SinkError(
            f"the {part.part}s of {topic} have no schema to be written with: {error}. Register a schema for {subject},"
            f" or give {part.part}Schema; auto.register.schemas=true registers it"
        ) from error
    except RegistryUnreachableError as error:
        raise SinkError(f"the schema of {subject} cannot be read: {error}") from error


def derived_schema(part: PartFormat, kind: Any, subject: str) -> Schema:
    """A schema for values of an Arrow type. Raises SinkError if the format cannot have one."""
    if part.format is RecordFormat.PROTOBUF:
        raise SinkError(
            f"{part.part}Format=protobuf needs a schema, because its field numbers do not follow from column names:"
            f" register one for {subject}, or give {part.part}Schema"
        )
    try:
        if part.format is RecordFormat.AVRO:
            return Schema(avro_schema_of(kind, avro_name(subject)), SCHEMA_TYPES[part.format])
        return Schema(json_schema_of(kind, subject), SCHEMA_TYPES[part.format])
    except ValueError as error:
        raise SinkError(f"the column {part.part} cannot be written as {part.format.value}: {error}") from error


def check_fields(kind: Any, written: Any, path: str, subject: str) -> None:
    """Raise SinkError if the column has a field that its schema does not have: it would be lost."""
    if pa.types.is_struct(kind) and pa.types.is_struct(written):
        known = {field.name: field.type for field in written}
        for field in kind:
            if field.name not in known:
                raise SinkError(
                    f"the schema {subject or 'in the options'} has no field {path}.{field.name}; its fields are"
                    f" {', '.join(known)}. Leave the column out, or register a new version of the schema"
                )
            check_fields(field.type, known[field.name], f"{path}.{field.name}", subject)
    elif pa.types.is_list(kind) and pa.types.is_list(written):
        check_fields(kind.value_type, written.value_type, path, subject)
    elif pa.types.is_map(kind) and pa.types.is_map(written):
        check_fields(kind.item_type, written.item_type, path, subject)


def make_encoder(part: PartFormat, formats: RecordFormats, topic: str, kind: Any) -> Encode:
    """The function that encodes columns of type `kind`. Raises SinkError."""
    if part.format is RecordFormat.STRING:
        return lambda column: column.cast(pa.string())
    if part.format is RecordFormat.JSON:
        return lambda column: json_texts(column, b"")
    registered = writer_schema(part, formats, topic, kind)
    try:
        check_fields(kind, arrow_type_of(part, formats, registered), part.part, registered.subject)
    except ValueError as error:
        raise SinkError(f"the schema of the {part.part}s of {topic} cannot be used: {error}") from error
    registry = None if formats.registry is None else registry_client(formats.registry)
    start = b"" if registry is None else HEADER.pack(MAGIC, registered.id)
    if part.format is RecordFormat.JSON_SCHEMA:
        return lambda column: json_texts(column, start)
    if part.format is RecordFormat.PROTOBUF:
        message = message_class(part, formats, registered)
        indexes = b"" if registry is None else encode_indexes(indexes_of(message.DESCRIPTOR))
        return lambda column: _messages(column, message, start + indexes)
    stand_in: Any = OneSchema(registered, None if registry is None else registry.dependencies(registered.schema))
    columns = AvroColumns(stand_in, registered.schema, is_key=part.is_key, use_latest_version=True)
    if registry is None:
        return lambda column: _without_header(columns.encode(column, topic))
    return lambda column: columns.encode(column, topic)


def json_texts(column: Any, start: bytes) -> Any:
    """Each value as a JSON document after `start`. As Spark's `to_json` does, null fields of structs are left out, and
    entries of maps are not; NaN and infinities are texts.
    """
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_as_text).encode
    form = _json_form(column.type)
    values = column.to_pylist(maps_as_pydicts="strict")
    return pa.array([None if value is None else start + encode(form(value)).encode() for value in values], pa.binary())


def _json_form(kind: Any) -> Callable[[Any], Any]:
    """How a value of an Arrow type is given to the encoder."""
    if pa.types.is_struct(kind):
        fields = [(field.name, _json_form(field.type)) for field in kind]
        return lambda value: {name: form(value[name]) for name, form in fields if value[name] is not None}
    if pa.types.is_map(kind):
        item = _json_form(kind.item_type)
        return lambda value: {key: None if one is None else item(one) for key, one in value.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _json_form(kind.value_type)
        return lambda value: [None if one is None else element(one) for one in value]
    if pa.types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else float_text(value)
    return lambda value: value


def float_text(value: float) -> str:
    """A number that JSON does not have, as Spark, Connect and Java write it."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _without_header(column: Any) -> Any:
    # pyarrow's binary_slice fails on columns with nulls ("Negative buffer resize", version 26).
    return pa.array([None if one is None else one[HEADER.size :] for one in column.to_pylist()], pa.binary())


def _messages(column: Any, message: Any, start: bytes) -> Any:
    found: list[bytes | None] = []
    for row, value in enumerate(column.to_pylist(maps_as_pydicts="strict")):
        try:
            found.append(None if value is None else start + message(**_without_nulls(value)).SerializeToString())
        except (TypeError, ValueError) as error:  # of the message's constructor: a field of another type, or no field
            raise SerializationError(f"row {row} is not a {message.DESCRIPTOR.full_name}: {error}") from error
    return pa.array(found, pa.binary())


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _as_text(value: object) -> str:
    """Times, decimals and bytes have no JSON type."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat is not None else str(value)


def _of_type(found: RegisteredSchema, part: PartFormat) -> RegisteredSchema:
    if found.schema.type is not SCHEMA_TYPES[part.format]:
        raise SinkError(
            f"the subject {found.subject} has schemas of type {found.schema.type.value}, but {part.part}Format is"
            f" {part.format.value}"
        )
    return found


_encoders: dict[object, tuple[float, Encode]] = {}
_encoders_of = os.getpid()


def _encoder(part: PartFormat, formats: RecordFormats, topic: str, kind: Any) -> Encode:
    """This process's encoder for a topic, made anew after SCHEMA_AGE_MAX_S."""
    global _encoders_of
    if _encoders_of != os.getpid() or len(_encoders) >= ENCODERS_MAX:
        _encoders.clear()
        _encoders_of = os.getpid()
    key = part, formats, topic, str(kind)
    known = _encoders.get(key)
    if known is None or time.monotonic() > known[0] + SCHEMA_AGE_MAX_S:
        known = _encoders[key] = time.monotonic(), make_encoder(part, formats, topic, kind)
    return known[1]
