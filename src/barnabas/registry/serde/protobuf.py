"""Codec: serializes Protobuf messages with a schema registry.

    producer = Producer(bootstrap_servers=..., value_serializer=ProtobufSerializer(registry, Order))
    consumer = Consumer(bootstrap_servers=..., value_deserializer=ProtobufDeserializer(registry, Order))

Without a class, the deserializer creates one from the schema with which a record was written, so no generated code is
needed.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from barnabas.client.errors import SerializationError
from barnabas.client.values import Headers
from barnabas.registry.client import RegistryClient
from barnabas.registry.formats.protobuf import parse_protobuf
from barnabas.registry.formats.protobuf.known import known_file
from barnabas.registry.formats.protobuf.linker import collect_symbols
from barnabas.registry.formats.protobuf.printer import print_proto
from barnabas.registry.serde.base import SchemaReader, SchemaSerializer, SerializerOptions
from barnabas.registry.serde.wire_format import decode_indexes, encode_indexes, frame, unframe
from barnabas.registry.values import Reference, Schema, SchemaType


class ProtobufSerializer(SchemaSerializer):
    """Serializes messages of one class. The files that the class's file imports are registered too, with their import
    names as subjects; with `auto_register_schemas=False`, they are only looked up.

    The options are those of `SerializerOptions`.
    """

    def __init__(self, registry: RegistryClient, message_class: type[Message], **options: Any) -> None:
        super().__init__(registry, SerializerOptions(**options))
        self._class = message_class
        self._indexes = encode_indexes(indexes_of(message_class.DESCRIPTOR))

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, self._class):
            raise SerializationError(
                f"This serializer is for {self._class.DESCRIPTOR.full_name}, not for {type(value).__name__}."
            )
        return frame(self.prepare(topic).id, self._indexes + value.SerializeToString())

    def _record_name(self) -> str | None:
        name: str = self._class.DESCRIPTOR.full_name
        return name

    def _schema(self, topic: str) -> Schema:
        return self._register_imports(self._class.DESCRIPTOR.file)

    def _register_imports(self, file: Any) -> Schema:
        """The schema of a file. The schemas of its imports are registered first, or looked up with
        `auto_register_schemas=False`.
        """
        references = []
        for other in file.dependencies:
            if known_file(other.name) is not None:
                continue
            schema = self._register_imports(other)
            register = self._registry.register if self._options.auto_register_schemas else self._registry.look_up
            registered = register(other.name, schema, normalize=self._options.normalize_schemas)
            references.append(Reference(other.name, other.name, registered.version))
        return Schema(text_of(file), SchemaType.PROTOBUF, tuple(references))


class ProtobufDeserializer(SchemaReader):
    """Deserializes messages of `message_class`, or of classes created from the schemas of the records."""

    def __init__(
        self, registry: RegistryClient, message_class: type[Message] | None = None, *, is_key: bool = False
    ) -> None:
        super().__init__(registry, is_key=is_key)
        self._class = message_class
        self._needs_ids = message_class is None

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id, framed = unframe(data)
        indexes, payload = decode_indexes(framed)
        if self._class is not None:
            message = self._class()
        else:
            message = class_at(self._for_id(schema_id, topic), indexes)()
        try:
            message.ParseFromString(bytes(payload))
        except DecodeError as error:
            raise SerializationError(
                f"A record of {topic!r} is not a {message.DESCRIPTOR.full_name}: {error}"
            ) from error
        return message

    def _make(self, schema: Schema) -> Any:
        if schema.type is not SchemaType.PROTOBUF:
            raise ValueError(
                f"The record was written with a {schema.type.value} schema; use the deserializer for that type."
            )
        return build_file(self._registry, schema)


def build_file(registry: RegistryClient, schema: Schema) -> Any:
    """The file descriptor of a schema, in a descriptor pool of its own together with the imports."""
    others = {name: other.text for name, other in registry.dependencies(schema).items()}
    parsed = parse_protobuf(schema.text, others)
    pool = DescriptorPool()
    added: set[str] = set()

    def add(file: pb.FileDescriptorProto) -> None:
        if file.name not in added:
            added.add(file.name)
            for name in file.dependency:
                add(parsed.dependencies[name])
            pool.Add(file)

    add(parsed.file)
    return pool.FindFileByName(parsed.file.name)


def indexes_of(descriptor: Any) -> list[int]:
    """The message indexes: the path from the file to a message.

    The message types of map fields are not counted, because a .proto file does not contain them. Confluent's Java
    serializer counts in the same way; Confluent's Python serializer counts them if a map field precedes a message.
    """
    indexes: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = list(descriptor.file.message_types_by_name.values()) if parent is None else _nested(parent)
        indexes.insert(0, [one.name for one in siblings].index(descriptor.name))
        descriptor = parent
    return indexes


def _nested(descriptor: Any) -> list[Any]:
    return [nested for nested in descriptor.nested_types if not nested.GetOptions().map_entry]


def text_of(file: Any) -> str:
    """The .proto text of a file descriptor from generated code."""
    proto = _proto_of(file)
    imported: dict[str, pb.FileDescriptorProto] = {}
    todo = list(file.dependencies)
    while todo:
        other = todo.pop()
        if other.name not in imported:
            imported[other.name] = _proto_of(other)
            todo.extend(other.dependencies)
    return print_proto(proto, collect_symbols(proto, imported))


def _proto_of(file: Any) -> pb.FileDescriptorProto:
    proto = pb.FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def class_at(file: Any, indexes: list[int]) -> type[Message]:
    """The class of the message to which the indexes lead. Raises SerializationError."""
    messages = list(file.message_types_by_name.values())
    descriptor = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise SerializationError(f"The schema of a record has no message at {indexes}.")
        descriptor = messages[index]
        messages = _nested(descriptor)
    if descriptor is None:
        raise SerializationError("A Protobuf record has no message indexes.")
    found: type[Message] = GetMessageClass(descriptor)
    return found
