"""Codec: between the objects of a program and the bytes of a record.

A serializer is a function from a value to bytes, or an object with `serialize(topic, headers, value)` when it needs to
know where the record goes (schema registries do). Likewise a deserializer, with `deserialize(topic, headers, data)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.client.errors import SerializationError
from barnabas.client.values import Headers
from barnabas.core.buffers import Buffer


class Serializer(Protocol):
    """Turns a key or a value into bytes, knowing topic and headers."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> Buffer | None: ...


class Deserializer(Protocol):
    """Turns bytes into a key or a value, knowing topic and headers."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any: ...


AnySerializer = Serializer | Callable[[Any], Buffer | None]
AnyDeserializer = Deserializer | Callable[[Any], Any]
Encode = Callable[[str, Headers, Any], Buffer | None]
Decode = Callable[[str, Headers, bytes | None], Any]


def as_encode(serializer: AnySerializer | None, part: str) -> Encode:
    """A function of (topic, headers, value); failures become SerializationError."""
    if serializer is None:
        return plain_bytes
    inner: Encode
    if hasattr(serializer, "serialize"):
        inner = serializer.serialize
    else:
        function: Callable[[Any], Buffer | None] = serializer

        def inner(topic: str, headers: Headers, value: Any) -> Buffer | None:
            return function(value)

    def encode(topic: str, headers: Headers, value: Any) -> Buffer | None:
        try:
            return inner(topic, headers, value)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(f"The {part} serializer failed for topic {topic!r}: {error!r}") from error

    return encode


def as_decode(deserializer: AnyDeserializer | None, part: str) -> Decode | None:
    """A function of (topic, headers, data), or None for bytes as they are."""
    if deserializer is None:
        return None
    inner: Decode
    if hasattr(deserializer, "deserialize"):
        inner = deserializer.deserialize
    else:
        function: Callable[[Any], Any] = deserializer

        def inner(topic: str, headers: Headers, data: bytes | None) -> Any:
            return None if data is None else function(data)

    def decode(topic: str, headers: Headers, data: bytes | None) -> Any:
        try:
            return inner(topic, headers, data)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(f"The {part} deserializer failed for topic {topic!r}: {error!r}") from error

    return decode


def plain_bytes(topic: str, headers: Headers, value: Any) -> Buffer | None:
    """Bytes as they are, text as UTF-8; anything else needs a serializer."""
    if value is None or isinstance(value, (bytes, bytearray, memoryview)):
        return value
    if isinstance(value, str):
        return value.encode()
    raise SerializationError(
        f"A {type(value).__name__} cannot be sent to {topic!r} as it is: give bytes or text, or set key_serializer or"
        " value_serializer (barnabas.client.serialization.json_serializer, for example)."
    )


def json_serializer(value: Any) -> bytes:
    """Compact UTF-8 JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_deserializer(data: bytes) -> Any:
    return json.loads(data)


def string_deserializer(data: bytes) -> str:
    return data.decode()
