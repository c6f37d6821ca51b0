"""Codec: columns of Protobuf messages: protobuf's parser parses one message at a time; their fields become structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import Message

from barnabas.client.columns.byte_column import ByteColumn, pa
from barnabas.client.errors import SerializationError
from barnabas.registry.client import RegistryClient
from barnabas.registry.columns.base import (
    OnError,
    RegistryColumns,
    RowErrors,
    assemble,
    read_each,
    rows_of_ids,
    to_array,
)
from barnabas.registry.columns.protobuf_types import arrow_type, read_message
from barnabas.registry.serde.protobuf import ProtobufSerializer, build_file, class_at
from barnabas.registry.serde.wire_format import decode_indexes
from barnabas.registry.values import Schema, SchemaType

_TOPICS_MAX: Final = 10_000


class ProtobufColumns(RegistryColumns):
    """Framed messages <-> columns of structs.

    The struct type is that of `message_class`. Without a class, the first batch of a topic determines the type: it is
    the type of the first readable message with the highest schema id. Later batches use the same type, and messages
    with another name are errors. With `reader_class`, the struct type is that of this class, while each message is
    still parsed by the schema with which it was written. Writing needs `message_class`. The other options are those of
    `SerializerOptions`.
    """

    def __init__(
        self,
        registry: RegistryClient,
        message_class: type[Message] | None = None,
        *,
        reader_class: type[Message] | None = None,
        is_key: bool = False,
        on_error: OnError = "raise",
        **options: Any,
    ) -> None:
        super().__init__(registry, is_key=is_key, on_error=on_error)
        self._class = message_class
        self._reader_class = message_class if reader_class is None else reader_class
        self._writer = (
            None if message_class is None else ProtobufSerializer(registry, message_class, is_key=is_key, **options)
        )
        self._readers: dict[str, tuple[str, Any, Any]] = {}

    def _make(self, schema: Schema) -> Any:
        if schema.type is not SchemaType.PROTOBUF:
            raise ValueError(
                f"the row was written with a {schema.type.value} schema: use the columns class for that type"
            )
        return build_file(self._registry, schema)

    def _decode(self, framed: ByteColumn, ids: Any, topic: str, errors: RowErrors) -> Any:
        parsed: list[tuple[Any, list[Any]]] = []
        for schema_id, rows in rows_of_ids(ids):
            file = None if self._class is not None else self._try_for_id(schema_id, topic, rows, errors)
            if file is not None or self._class is not None:
                parsed.append((rows, read_each(framed, rows, errors, self._parser(file))))
        found = self._reader(topic, [message for _, messages in reversed(parsed) for message in messages])
        if found is None:
            return pa.nulls(len(framed))
        name, kind, to_dict = found
        parts = []
        for rows, messages in parsed:
            values = []
            for row, message in zip(rows.tolist(), messages, strict=True):
                fits = message is not None and message.DESCRIPTOR.full_name == name
                values.append(to_dict(message) if fits else None)
                if message is not None and not fits:
                    errors.add(row, f"the message is a {message.DESCRIPTOR.full_name}, but the column has {name}")
            parts.append((rows, to_array(values, kind, rows, errors)))
        return assemble(parts, len(framed), kind)

    def _parser(self, file: Any) -> Callable[[bytes], Message]:
        """The function that parses a payload, with `message_class` or the class that the message indexes identify."""
        classes: dict[tuple[int, ...], type[Message]] = {}

        def parse(data: bytes) -> Message:
            indexes, payload = decode_indexes(memoryview(data))
            found = self._class
            if found is None:
                found = classes.get(tuple(indexes))
                if found is None:
                    found = classes[tuple(indexes)] = class_at(file, indexes)
            return found.FromString(bytes(payload))

        return parse

    def _reader(self, topic: str, messages: list[Any]) -> tuple[str, Any, Any] | None:
        found = self._readers.get(topic)
        if found is None:
            first: Any = self._reader_class
            if first is None:
                first = next((one for one in messages if one is not None), None)
            if first is None:
                return None
            if len(self._readers) >= _TOPICS_MAX:
                self._readers.clear()
            descriptor = first.DESCRIPTOR
            found = descriptor.full_name, arrow_type(descriptor), read_message(descriptor)
            self._readers[topic] = found
        return found

    def encode(self, column: pa.Array | pa.ChunkedArray, topic: str) -> pa.Array:
        """Encode each struct as a message; null fields are left out."""
        if self._class is None or self._writer is None:
            raise SerializationError("Writing Protobuf needs a class: ProtobufColumns(registry, Order)")
        encoded: list[bytes | None] = []
        for row, value in enumerate(column.to_pylist(maps_as_pydicts="strict")):
            try:
                message = None if value is None else self._class(**_without_nulls(value))
            except (TypeError, ValueError) as error:
                name = self._class.DESCRIPTOR.full_name
                raise SerializationError(f"Row {row} for {topic!r} is not a {name}: {error}") from error
            encoded.append(self._writer.serialize(topic, (), message))
        return pa.array(encoded, pa.binary())


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
