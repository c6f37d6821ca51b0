"""Codec: serializes Avro values with a schema registry.

    producer = Producer(bootstrap_servers=..., value_serializer=AvroSerializer(registry, ORDER_SCHEMA))
    consumer = Consumer(bootstrap_servers=..., value_deserializer=AvroDeserializer(registry))

The deserializer applies Avro's schema resolution: a consumer with a reader's schema receives all values in its shape,
whichever compatible version they were written with.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import fastavro

from barnabas.client.values import Headers
from barnabas.registry.client import RegistryClient
from barnabas.registry.formats.avro import parse_avro
from barnabas.registry.serde.base import SchemaReader, SchemaSerializer, SerializerOptions
from barnabas.registry.serde.wire_format import HEADER, MAGIC, unframe
from barnabas.registry.values import RegisteredSchema, Schema, SchemaType


class AvroSerializer(SchemaSerializer):
    """Serializes values (dictionaries for records) as Avro. `to_dict` converts other objects to dictionaries.

    `schema` is a string, or a Schema if it has references; None with `use_latest_version`. The other options are those
    of `SerializerOptions`.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(registry, SerializerOptions(**options))
        if schema is None and not self._options.use_latest_version:
            raise ValueError("AvroSerializer needs a schema, or use_latest_version=True.")
        self._given = Schema(schema) if isinstance(schema, str) else schema
        self._to_dict = to_dict
        self._parsed: dict[int, Any] = {}

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        if value is None:
            return None
        registered = self.prepare(topic)
        parsed = self._parsed[registered.id]
        out = io.BytesIO()
        out.write(HEADER.pack(MAGIC, registered.id))
        fastavro.schemaless_writer(out, parsed, value if self._to_dict is None else self._to_dict(value))
        return out.getvalue()

    def _get_ready(self, registered: RegisteredSchema) -> None:
        schema = registered.schema if self._given is None or self._options.use_latest_version else self._given
        self._parsed[registered.id] = parse_for_fastavro(self._registry, schema)

    def _record_name(self) -> str | None:
        if self._given is None:
            return None
        dependencies = self._registry.dependencies(self._given)
        return parse_avro(self._given.text, [one.text for one in dependencies.values()]).name

    def _schema(self, topic: str) -> Schema:
        assert self._given is not None
        return self._given


class AvroDeserializer(SchemaReader):
    """Deserializes Avro. Values have the shape of `reader_schema`, or of the writer's schema without it. `from_dict`
    converts dictionaries to objects.
    """

    def __init__(
        self,
        registry: RegistryClient,
        reader_schema: str | Schema | None = None,
        *,
        from_dict: Callable[[Any], Any] | None = None,
        is_key: bool = False,
    ) -> None:
        super().__init__(registry, is_key=is_key)
        given = Schema(reader_schema) if isinstance(reader_schema, str) else reader_schema
        self._reader = None if given is None else parse_for_fastavro(registry, given)
        self._from_dict = from_dict

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id, payload = unframe(data)
        writer = self._for_id(schema_id, topic)
        value = fastavro.schemaless_reader(io.BytesIO(payload), writer, self._reader)
        return value if self._from_dict is None else self._from_dict(value)

    def _make(self, schema: Schema) -> Any:
        if schema.type is not SchemaType.AVRO:
            raise ValueError(
                f"The record was written with a {schema.type.value} schema; use the deserializer for that type."
            )
        return parse_for_fastavro(self._registry, schema)


def parse_for_fastavro(registry: RegistryClient, schema: Schema) -> Any:
    """Parse a schema and its references as fastavro expects them."""
    named: dict[str, Mapping[str, Any]] = {}
    for dependency in registry.dependencies(schema).values():
        fastavro.parse_schema(_load(dependency.text), named_schemas=named)
    return fastavro.parse_schema(_load(schema.text), named_schemas=named)


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # the name of a primitive type without quotes
