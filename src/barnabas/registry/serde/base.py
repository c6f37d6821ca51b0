"""Shell: shared parts of all serializers: choosing the subject, the version and the schema id.

If it is called directly, a serializer sends its requests to the registry at once and blocks until the response: one per
topic, and one per schema id when reading. Barnabas' clients call `serialize_now` and `deserialize_now` instead. These
raise NotReadyError if a request is needed, and the client then waits for the registry without blocking its event loop.
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
"""(topic, whether the schema is for keys, name of the record) -> subject."""


def topic_name(topic: str, is_key: bool, record: str | None) -> str:
    """The default: subject `<topic>-key` or `<topic>-value`. All values of a topic have one schema, which evolves."""
    return f"{topic}-{'key' if is_key else 'value'}"


def record_name(topic: str, is_key: bool, record: str | None) -> str:
    """Subject `<record>`: a topic may have several types, and a type has the same subject in all topics."""
    return _named(record)


def topic_record_name(topic: str, is_key: bool, record: str | None) -> str:
    """Subject `<topic>-<record>`: a topic may have several types, and each evolves separately for each topic."""
    return f"{topic}-{_named(record)}"


@dataclass(frozen=True, slots=True)
class SerializerOptions:
    """Options with Confluent's names, with underscores for dots: auto.register.schemas, use.latest.version,
    normalize.schemas, ...
    """

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
    """Chooses the schema version to write with. Subclasses encode the values."""

    def __init__(self, registry: RegistryClient, options: SerializerOptions) -> None:
        self._registry = registry
        self._options = options
        self._written: dict[str, RegisteredSchema] = {}
        self._asking = threading.Lock()

    def prepare(self, topic: str) -> RegisteredSchema:
        """The schema version with which values of a topic are written. Sends the necessary requests to the registry at
        the first call for the topic. Raises RegistryError.
        """
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
        """The framed bytes of a value. Sends requests to the registry if needed."""
        raise NotImplementedError

    def serialize_now(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """As `serialize`, but sends no requests. Raises NotReadyError if a request is needed."""
        if value is not None and topic not in self._written:
            raise NotReadyError(
                f"The registry must be queried for the schema of the {self._part()}s of {topic!r}.",
                lambda: asyncio.to_thread(self.prepare, topic),
            )
        return self.serialize(topic, headers, value)

    def _get_ready(self, registered: RegisteredSchema) -> None:
        """Prepare to write values with this version, for example by requesting the schemas to which its schema refers.
        A subclass overrides this method if it has something to prepare.
        """

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
        """The schema to register for a topic."""
        raise NotImplementedError

    def _part(self) -> str:
        return "key" if self._options.is_key else "value"


class SchemaReader:
    """Looks up schemas by id, and caches their parsed form. Subclasses decode the values."""

    def __init__(self, registry: RegistryClient, *, is_key: bool = False) -> None:
        self._registry = registry
        self._is_key = is_key
        self._made: dict[int, Any] = {}
        self._needs_ids = True
        """Whether the writers' schemas are needed to read."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """The deserialized value. Sends requests to the registry if needed."""
        raise NotImplementedError

    def deserialize_now(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """As `deserialize`, but sends no requests. Raises NotReadyError if a request is needed."""
        if data is not None and self._needs_ids:
            schema_id, _ = unframe(data)
            if schema_id not in self._made:
                raise NotReadyError(
                    f"The registry must be queried for the schema with id {schema_id}.",
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
                # Schema ids belong to a context, which is known from the subject only.
                schema = self._registry.schema(schema_id, subject=topic_name(topic, self._is_key, None))
            made = self._made[schema_id] = self._make(schema)
        return made

    def _make(self, schema: Schema) -> Any:
        """Parse a schema into the form that decoding needs."""
        raise NotImplementedError


def _named(record: str | None) -> str:
    if not record:
        raise ValueError("This subject name strategy needs a schema with a name (a record, a message, a title).")
    return record
