"""Shell: what the serializers of all types share: which subject, which version, which id.

Serializing is synchronous, so what the registry must be asked is asked there and then, once for each topic (and once
for each id when reading); afterwards everything is at hand. On an event loop, ask ahead of time so that it never
blocks:

    await asyncio.to_thread(serializer.prepare, "orders")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import Code, RegistryError
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

    def prepare(self, topic: str) -> RegisteredSchema:
        """Ask the registry what it must be asked for a topic. Raises RegistryError."""
        known = self._written.get(topic)
        if known is None:
            if len(self._written) >= _TOPICS_MAX:
                self._written.clear()
            known = self._written[topic] = self._find(topic)
        return known

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
