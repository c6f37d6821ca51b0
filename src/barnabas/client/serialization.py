"""Codec: converts between the objects of a program and the bytes of a record.

A serializer is a function from a value to bytes, or an object with `serialize(topic, headers, value)` when it needs
the record's topic and headers, as those of schema registries do. A deserializer object has
`deserialize(topic, headers, data)`.

A (de)serializer that may have to wait, for a schema registry perhaps, may also have `serialize_now` or
`deserialize_now`, which raise NotReadyError instead of waiting. The client then waits without blocking its event loop.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from barnabas.client.errors import SerializationError
from barnabas.client.values import Headers
from barnabas.core.buffers import Buffer


class NotReadyError(SerializationError):
    """Data is missing to (de)serialize this key or value; `learn` fetches the data."""

    def __init__(self, message: str, learn: Callable[[], Awaitable[object]]) -> None:
        super().__init__(message)
        self._learn = learn

    def __reduce__(self) -> tuple[Any, ...]:
        return SerializationError, (str(self),)  # another process cannot fetch the data with this process's client

    async def learn(self) -> None:
        """Fetch the missing data. Raises SerializationError when that fails."""
        try:
            await self._learn()
        except SerializationError:
            raise
        except Exception as error:  # the (de)serializer's code may raise any exception
            raise SerializationError(f"{self} That failed: {error}") from error

    def at(self, place: str) -> NotReadyError:
        """The same error, with the record's position in its message."""
        return NotReadyError(f"{place}: {self}", self._learn)


class Serializer(Protocol):
    """Turns a key or a value into bytes; gets the topic and the headers of the record."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> Buffer | None: ...


class Deserializer(Protocol):
    """Turns bytes into a key or a value; gets the topic and the headers of the record."""

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
    if hasattr(serializer, "serialize_now"):
        inner = serializer.serialize_now
    elif hasattr(serializer, "serialize"):
        inner = serializer.serialize
    else:
        function: Callable[[Any], Buffer | None] = serializer

        def inner(topic: str, headers: Headers, value: Any) -> Buffer | None:
            return function(value)

    def encode(topic: str, headers: Headers, value: Any) -> Buffer | None:
        try:
            data = inner(topic, headers, value)
        except SerializationError:
            raise
        except Exception as error:  # the user's serializer may raise any exception
            raise SerializationError(f"The {part} serializer failed for topic {topic!r}: {error!r}") from error
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            raise SerializationError(
                f"The {part} serializer returned a {type(data).__name__} for topic {topic!r}; it must return bytes or"
                " None."
            )
        return data

    return encode


def as_decode(deserializer: AnyDeserializer | None, part: str, *, now: bool = False) -> Decode | None:
    """A function of (topic, headers, data), or None for unchanged bytes. With `now` the function may raise
    NotReadyError."""
    if deserializer is None:
        return None
    inner: Decode
    if now and hasattr(deserializer, "deserialize_now"):
        inner = deserializer.deserialize_now
    elif hasattr(deserializer, "deserialize"):
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
        except Exception as error:  # the user's deserializer may raise any exception
            raise SerializationError(f"The {part} deserializer failed for topic {topic!r}: {error!r}") from error

    return decode


def plain_bytes(topic: str, headers: Headers, value: Any) -> Buffer | None:
    """Bytes unchanged, text as UTF-8; other types need a serializer."""
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
