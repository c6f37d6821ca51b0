"""Codec: serializes JSON values with a schema registry. Values are validated against their schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.client.errors import SerializationError
from barnabas.client.values import Headers
from barnabas.registry.client import RegistryClient
from barnabas.registry.serde.base import SchemaReader, SchemaSerializer, SerializerOptions
from barnabas.registry.serde.wire_format import frame, unframe
from barnabas.registry.values import RegisteredSchema, Schema, SchemaType

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


class JsonSerializer(SchemaSerializer):
    """Serializes values as JSON. `to_dict` converts other objects to dictionaries; `validate=False` skips the
    validation.

    `schema` is a string, or a Schema if it has references; None with `use_latest_version`. The other options are those
    of `SerializerOptions`.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        validate: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(registry, SerializerOptions(**options))
        if schema is None and not self._options.use_latest_version:
            raise ValueError("JsonSerializer needs a schema, or use_latest_version=True.")
        self._given = Schema(schema, SchemaType.JSON) if isinstance(schema, str) else schema
        self._to_dict = to_dict
        self._validate = validate
        self._validators: dict[int, Validator] = {}

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        if value is None:
            return None
        registered = self.prepare(topic)
        document = value if self._to_dict is None else self._to_dict(value)
        if self._validate:
            _check(self._validators[registered.id], document, f"The {self._part()} for {topic!r}")
        return frame(registered.id, json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())

    def _get_ready(self, registered: RegisteredSchema) -> None:
        if self._validate:
            schema = registered.schema if self._given is None else self._given
            self._validators[registered.id] = build_validator(self._registry, schema)

    def _record_name(self) -> str | None:
        if self._given is None:
            return None
        document = json.loads(self._given.text)
        return document.get("title") if isinstance(document, dict) else None

    def _schema(self, topic: str) -> Schema:
        assert self._given is not None
        return self._given


class JsonDeserializer(SchemaReader):
    """Deserializes JSON, and validates values against `schema`, or against the schema with which they were written."""

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        from_dict: Callable[[Any], Any] | None = None,
        validate: bool = True,
        is_key: bool = False,
    ) -> None:
        super().__init__(registry, is_key=is_key)
        given = Schema(schema, SchemaType.JSON) if isinstance(schema, str) else schema
        self._own = build_validator(registry, given) if given is not None and validate else None
        self._validate = validate
        self._needs_ids = validate and self._own is None
        self._from_dict = from_dict

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id, payload = unframe(data)
        document = json.loads(bytes(payload))
        if self._validate:
            _check(self._own or self._for_id(schema_id, topic), document, f"A record of {topic!r}")
        return document if self._from_dict is None else self._from_dict(document)

    def _make(self, schema: Schema) -> Any:
        if schema.type is not SchemaType.JSON:
            raise ValueError(
                f"The record was written with a {schema.type.value} schema; use the deserializer for that type."
            )
        return build_validator(self._registry, schema)


def build_validator(registry: RegistryClient, schema: Schema) -> Validator:
    """A validator for the schema's draft (draft 7 if the schema names none) that resolves the schema's references."""
    from jsonschema import Draft7Validator
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    def resource(text: str) -> Any:
        return Resource.from_contents(json.loads(text), default_specification=DRAFT7)

    others = [(name, resource(other.text)) for name, other in registry.dependencies(schema).items()]
    document = json.loads(schema.text)
    validator = validator_for(document, default=Draft7Validator)
    built: Validator = validator(document, registry=Registry().with_resources(others))
    return built


def _check(validator: Validator, document: Any, what: str) -> None:
    error = next(iter(validator.iter_errors(document)), None)
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "its root"
        raise SerializationError(f"{what} does not fit its schema at {place}: {error.message}")
