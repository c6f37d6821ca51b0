"""Codec: encodes and decodes messages, with functions that are generated on first use of a class and version.

    encode(MetadataRequest(topics=None), 12)      -> bytes
    encode_parts(response, 12)                    -> [bytes, memoryview, bytes, ...]: large records are not copied
    decode(MetadataRequest, 12, body)             -> MetadataRequest

Faulty input raises WireError. A length in the input is compared with the number of bytes that are left before memory is
allocated for that length.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.compile_decoder import compile_decoder
from barnabas.protocol.wire.compile_encoder import FieldNotCarriedError, compile_encoder
from barnabas.protocol.wire.errors import VersionError, WireError
from barnabas.protocol.wire.layout import has_records
from barnabas.protocol.wire.primitives import FieldError
from barnabas.protocol.wire.schema import MessageStruct
from barnabas.protocol.wire.source import Compiled

M = TypeVar("M", bound=MessageStruct)

FRAME_BYTES_MAX = 0x7FFFFFFF

_UNREADABLE = (FieldError, struct.error, IndexError, UnicodeDecodeError)
_UNWRITABLE = (FieldError, struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)


def encode(message: MessageStruct, version: int) -> bytes:
    """The message as bytes. Raises VersionError, or WireError for a value that the protocol cannot encode."""
    parts: list[Buffer] = []
    _encode(message, version, parts, [])
    return b"".join(parts)


def encode_parts(message: MessageStruct, version: int, head: bytes = b"") -> list[Buffer]:
    """The bytes of `head` and of the message, in pieces. Large buffers in a `records` field are returned as they are,
    without a copy; the bytes between them are joined.
    """
    parts: list[Buffer] = [head]
    bulk: list[int] = []
    _encode(message, version, parts, bulk)
    return _join_small(parts, bulk)


def encode_frame(message: MessageStruct, version: int, head: bytes) -> list[Buffer]:
    """A frame that is ready to be sent: the length, `head`, and the message, in pieces as from `encode_parts`."""
    parts: list[Buffer] = [b""]
    bulk: list[int] = []
    _encode(message, version, parts, bulk)
    length = len(head) + sum(map(len, parts))
    if length > FRAME_BYTES_MAX:
        raise WireError(f"{message.__schema__.name} v{version} takes {length} bytes; a frame holds {FRAME_BYTES_MAX}")
    parts[0] = length.to_bytes(4, "big") + head
    return _join_small(parts, bulk) if bulk else [b"".join(parts)]


def decode(cls: type[M], version: int, buf: Buffer, offset: int = 0) -> M:
    """The message that extends from `offset` to the end of `buf`. Raises VersionError or WireError.

    The value of a `records` field is a memoryview of `buf`. Therefore pass the whole frame as `buf`, not a copy of a
    part of the frame. For a message class without `records` fields, a `buf` that is not `bytes` is copied once.
    """
    message, end = decode_prefix(cls, version, buf, offset)
    if end != len(buf):
        raise WireError(f"{cls.__name__} v{version} ends at byte {end}, but {len(buf) - end} bytes follow")
    return message


def decode_prefix(cls: type[M], version: int, buf: Buffer, offset: int = 0) -> tuple[M, int]:
    """The message at `offset`, and the offset of its end. Raises VersionError or WireError."""
    compiled = cls.__schema__.decoders.get(version) or _decoder(cls, version)
    data = buf if type(buf) is bytes or has_records(cls) else bytes(buf)
    try:
        message, end = compiled.run(data, offset, len(data))
    except _UNREADABLE as error:
        raise _unreadable(cls, version, compiled, error) from None
    return message, end


def generated_source(cls: type[MessageStruct], version: int) -> str:
    """The source of the encoder and the decoder of a class and version, for debugging."""
    encoder = cls.__schema__.encoders.get(version) or _encoder(cls, version)
    decoder = cls.__schema__.decoders.get(version) or _decoder(cls, version)
    return f"{encoder.source}\n\n{decoder.source}"


def _join_small(parts: list[Buffer], bulk: list[int]) -> list[Buffer]:
    """Join the pieces between the large buffers. `bulk` has the indexes of the large buffers in `parts`."""
    out: list[Buffer] = []
    start = 0
    for index in bulk:
        if index > start:
            out.append(b"".join(parts[start:index]))
        out.append(parts[index])
        start = index + 1
    if start < len(parts):
        out.append(b"".join(parts[start:]))
    return out


def _encode(message: MessageStruct, version: int, parts: list[Buffer], bulk: list[int]) -> None:
    schema = message.__schema__
    compiled = schema.encoders.get(version) or _encoder(type(message), version)
    try:
        compiled.run(message, parts, bulk)
    except _UNWRITABLE as error:
        kind = VersionError if isinstance(error, FieldNotCarriedError) else WireError
        raise kind(f"{schema.name} v{version}, {compiled.where(error.__traceback__)}: {error}") from error


def _encoder(cls: type[MessageStruct], version: int) -> Compiled:
    _check_version(cls, version)
    compiled = cls.__schema__.encoders[version] = compile_encoder(cls, version)
    return compiled


def _decoder(cls: type[MessageStruct], version: int) -> Compiled:
    _check_version(cls, version)
    compiled = cls.__schema__.decoders[version] = compile_decoder(cls, version)
    return compiled


def _check_version(cls: type[MessageStruct], version: int) -> None:
    schema = cls.__schema__
    if version not in schema.versions:
        raise VersionError(f"{schema.name} has no version {version}; it has {schema.versions}")


def _unreadable(cls: type[MessageStruct], version: int, compiled: Compiled, error: Exception) -> WireError:
    if isinstance(error, UnicodeDecodeError):
        what = "the string is not valid UTF-8"
    elif isinstance(error, FieldError):
        what = str(error)
    else:
        what = "the input ends within it"
    where = compiled.where(error.__traceback__)
    return WireError(f"{cls.__name__} v{version}{', ' if where else ''}{where}: {what}")
