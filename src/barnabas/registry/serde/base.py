"""Shell: what the serializers of all types share: which subject, which version, which id.

Called by itself, a serializer asks the registry there and then, once for each topic (and once for each id when
reading), and blocks for that long. Our clients call `serialize_now` and `deserialize_now` instead: where something is
not known yet these raise NotReadyError, and the client waits for the registry without holding up its event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.serialization import NotReadyError
from barnabas.client.values import Headers
from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.serde.wire_format import unframe
from barnabas.registry.values import RegisteredSchema, Schema

SubjectStrategy = Callable[[str, bool, str | None], str]
"""(topic, whether it is for keys, the name of the record) -> subject."""


def topic_name(topic: str, is_key: bool, record: str | None) -> str:
    """`orders-value`: one schema, evolving, for all values of a topic. The field's default."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, is_key: bool, record: str | None) -> str:
    """`shop.Order`: a topic may hold several types, and a type has one subject everywhere."""
    return _named(record)


def topic_record_name(topic: str, is_key: bool, record: str | None) -> str:
    """`orders-shop.Order`: several types in a topic, each evolving for that topic alone."""
    return f"{topic}-{_named(record)}"


@dataclass(frozen=True, slots=True)
class SerializerOptions:
    """Under Confluent's names, with underscores: auto.register.schemas, use.latest.version, normalize.schemas, ..."""

    is_key: bool = False
    auto_register_schemas: bool = True
    use_latest_version: bool = False
    normalize_schemas: bool = False
    subject_name_strategy: SubjectStrategy = topic_name

    def __post_init__(self) -> None:
        if self.use_latest_version and self.auto_register_schemas:
            object.__setattr__(self, "auto_register_schemas", False)


_TOPICS_MAX: Final = 10_000


class SchemaSerializer:
    """Finds the version to write with. Subclasses turn values into bytes."""

    def __init__(self, registry: RegistryClient, options: SerializerOptions) -> None:
        self._registry = registry
        self._options = options
        self._written: dict[str, RegisteredSchema] = {}
        self._asking = threading.Lock()

    def prepare(self, topic: str) -> RegisteredSchema:
        """Ask the registry what it must be asked for a topic. Raises RegistryError."""
        known = self._written.get(topic)
        if known is not None:
            return known
        with self._asking:
            known = self._written.get(topic)
            if known is None:
                known = self._find(topic)
                self._get_ready(known)
                if len(self._written) >= _TOPICS_MAX:
                    self._written.clear()
                self._written[topic] = known
        return known

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """Framed bytes. Asks the registry first, if need be."""
        raise NotImplementedError

    def serialize_now(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """The same without asking. Raises NotReadyError."""
        if value is not None and topic not in self._written:
            raise NotReadyError(
                f"The registry must be asked for the schema of the {self._part()}s of {topic!r}.",
                lambda: asyncio.to_thread(self.prepare, topic),
            )
        return self.serialize(topic, headers, value)

    def _get_ready(self, registered: RegisteredSchema) -> None:
        """Whatever else takes asking before values can be written with this schema."""

    def _find(self, topic: str) -> RegisteredSchema:
        options, registry = self._options, self._registry
        subject = options.subject_name_strategy(topic, options.is_key, self._record_name())
        if options.use_latest_version:
            found = registry.latest(subject)
        elif options.auto_register_schemas:
            found = registry.register(subject, self._schema(topic), normalize=options.normalize_schemas)
        else:
            found = registry.look_up(subject, self._schema(topic), normalize=options.normalize_schemas)
        return found

    def _record_name(self) -> str | None:
        raise NotImplementedError

    def _schema(self, topic: str) -> Schema:
        """What to register for a topic."""
        raise NotImplementedError

    def _part(self) -> str:
        return "key" if self._options.is_key else "value"


class SchemaReader:
    """Finds what ids stand for, and keeps what was made of it. Subclasses turn bytes into values."""

    def __init__(self, registry: RegistryClient, *, is_key: bool = False) -> None:
        self._registry = registry
        self._is_key = is_key
        self._made: dict[int, Any] = {}
        self._needs_ids = True
        """The writers' schemas are needed to read."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The value. Asks the registry first, if need be."""
        raise NotImplementedError

    def deserialize_now(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The same without asking. Raises NotReadyError."""
        if data is not None and self._needs_ids:
            schema_id, _ = unframe(data)
            if schema_id not in self._made:
                raise NotReadyError(
                    f"The registry must be asked for the schema with id {schema_id}.",
                    lambda: asyncio.to_thread(self._for_id, schema_id, topic),
                )
        return self.deserialize(topic, headers, data)

    def _for_id(self, schema_id: int, topic: str) -> Any:
        made = self._made.get(schema_id)
        if made is None:
            try:
                schema = self._registry.schema(schema_id)
            except RegistryError as error:
                if error.code != Code.SCHEMA_NOT_FOUND:
                    raise
                # Ids belong to contexts; which one, only a subject says.
                schema = self._registry.schema(schema_id, subject=topic_name(topic, self._is_key, None))
            made = self._made[schema_id] = self._make(schema)
        return made

    def _make(self, schema: Schema) -> Any:
        """What is needed to read with a schema."""
        raise NotImplementedError


def _named(record: str | None) -> str:
    if not record:
        raise ValueError("This subject name strategy needs a schema with a name (a record, a message, a title).")
    return record
