"""Codec: the frame of a serialized value, which has the id of the schema with which the value was written.

    0        1            5
    +--------+------------+---------------------+
    | 0x00   | schema id  | the value           |      Protobuf: the message indexes come before the value
    +--------+------------+---------------------+
    magic    int32, big-endian

The message indexes are the path from the file to the message: its position among the file's messages, then its position
among the nested messages of that message, and so on. They are encoded as zigzag varints after their count. The first
message of a file, `[0]`, is encoded as one zero byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from barnabas.client.errors import SerializationError
from barnabas.core.buffers import Buffer

MAGIC: Final = 0
HEADER: Final = struct.Struct(">bi")
_INDEXES_MAX: Final = 100


def frame(schema_id: int, payload: bytes) -> bytes:
    """A payload with a frame header that has its schema id."""
    return HEADER.pack(MAGIC, schema_id) + payload


def unframe(data: Buffer) -> tuple[int, memoryview]:
    """(schema id, payload). Raises SerializationError for bytes without a valid frame header."""
    if len(data) < HEADER.size:
        raise SerializationError(f"{len(data)} bytes are too short for a schema id.")
    magic, schema_id = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SerializationError(
            f"The record begins with byte {magic}, not 0: it was not written by a schema registry serializer."
        )
    return schema_id, memoryview(data)[HEADER.size :]


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Encode the message indexes, the path from the file to a message."""
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def decode_indexes(data: memoryview) -> tuple[list[int], memoryview]:
    """(message indexes, the remaining bytes). Raises SerializationError."""
    count, position = _read_varint(data, 0)
    if count == 0:
        return [0], data[position:]
    if not 0 < count <= _INDEXES_MAX:
        raise SerializationError(f"A Protobuf record has {count} message indexes; the number is not valid.")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return indexes, data[position:]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise SerializationError("The message indexes of a Protobuf record are truncated.")
