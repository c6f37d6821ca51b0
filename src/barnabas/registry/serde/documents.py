"""Shell: framed keys and values <-> JSON documents, whatever the type of their schema.

    documents = Documents(registry)
    documents.read("orders", data)                    # the document, with the schema that the bytes name
    documents.write("orders", {"id": 1})              # with the newest schema of the subject orders-value

Both block until the registry has answered, the first time for each schema.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError
from barnabas.registry.serde.wire_format import HEADER, MAGIC, encode_indexes, frame, unframe
from barnabas.registry.values import RegisteredSchema, Schema, SchemaType

_FRAME_BYTES: Final = HEADER.size
_Writer = Callable[[Any], bytes]


def is_framed(data: bytes | None) -> bool:
    """Whether the bytes may name a schema: a zero byte and an id are in front."""
    return data is not None and len(data) >= _FRAME_BYTES and data[0] == MAGIC


class Documents:
    """Reads and writes documents. The registry's client belongs to the caller."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._readers: dict[tuple[SchemaType, bool], Any] = {}
        self._writers: dict[tuple[str, bool], _Writer] = {}

    def read(self, topic: str, data: bytes, *, is_key: bool = False) -> Any:
        """The document of framed bytes. Raises BarnabasError, or one of the errors of the libraries for Avro and
        Protobuf: ValueError, TypeError, LookupError, EOFError."""
        schema_id, _ = unframe(data)
        kind = self._schema(schema_id, _subject(topic, is_key=is_key)).type
        reader = self._readers.get((kind, is_key))
        if reader is None:
            reader = self._readers[kind, is_key] = _reader_class(kind)(self._registry, is_key=is_key)
        value = reader.deserialize(topic, (), data)
        if kind is SchemaType.PROTOBUF:
            from google.protobuf.json_format import MessageToDict

            return MessageToDict(value, preserving_proto_field_name=True)
        from barnabas.registry.serde.avro_documents import document_of

        return document_of(value)

    def prepare(self, topic: str, *, is_key: bool = False) -> None:
        """Request the schema with which `write` writes. Raises RegistryError if the subject does not exist."""
        if (topic, is_key) not in self._writers:
            registered = self._registry.latest(_subject(topic, is_key=is_key))
            match registered.schema.type:
                case SchemaType.AVRO:
                    writer = _avro_writer(self._registry, registered)
                case SchemaType.PROTOBUF:
                    writer = _protobuf_writer(self._registry, registered)
                case SchemaType.JSON:
                    writer = _json_writer(self._registry, topic, is_key=is_key)
            self._writers[topic, is_key] = writer

    def write(self, topic: str, document: Any, *, is_key: bool = False) -> bytes:
        """The framed bytes of a document, in the newest version of the topic's subject. Raises ValueError if the
        document does not fit the schema, and BarnabasError."""
        self.prepare(topic, is_key=is_key)
        return self._writers[topic, is_key](document)

    def _schema(self, schema_id: int, subject: str) -> Schema:
        try:
            return self._registry.schema(schema_id)
        except RegistryError:  # ids belong to a context, which is known from the subject only
            return self._registry.schema(schema_id, subject=subject)


def _subject(topic: str, *, is_key: bool) -> str:
    return f"{topic}-{'key' if is_key else 'value'}"


def _reader_class(kind: SchemaType) -> Any:
    """The deserializer of a schema type; imported when the first value of this type is read."""
    if kind is SchemaType.AVRO:
        from barnabas.registry.serde.avro import AvroDeserializer

        return AvroDeserializer
    if kind is SchemaType.PROTOBUF:
        from barnabas.registry.serde.protobuf import ProtobufDeserializer

        return ProtobufDeserializer
    from barnabas.registry.serde.json import JsonDeserializer

    return JsonDeserializer


def _avro_writer(registry: RegistryClient, registered: RegisteredSchema) -> _Writer:
    import fastavro

    from barnabas.registry.serde.avro import parse_for_fastavro
    from barnabas.registry.serde.avro_documents import avro_value

    parsed = parse_for_fastavro(registry, registered.schema)

    def write(document: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, avro_value(parsed, document))
        return frame(registered.id, out.getvalue())

    return write


def _protobuf_writer(registry: RegistryClient, registered: RegisteredSchema) -> _Writer:
    from google.protobuf.json_format import ParseDict, ParseError

    from barnabas.registry.serde.protobuf import build_file, class_at

    message_class = class_at(build_file(registry, registered.schema), [0])

    def write(document: Any) -> bytes:
        try:
            message = ParseDict(document, message_class())
        except ParseError as error:
            raise ValueError(str(error)) from error
        return frame(registered.id, encode_indexes([0]) + message.SerializeToString())

    return write


def _json_writer(registry: RegistryClient, topic: str, *, is_key: bool) -> _Writer:
    from barnabas.registry.serde.json import JsonSerializer

    serializer = JsonSerializer(registry, use_latest_version=True, is_key=is_key)

    def write(document: Any) -> bytes:
        data = serializer.serialize(topic, (), document)
        if data is None:
            raise ValueError("null is not a document: send a record without a value instead")
        return data

    return write
