"""Codec: functions that the generated codecs call: long varints, unknown tagged fields, UUIDs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID

from barnabas.core.buffers import Buffer

UVARINTS: Final = tuple(bytes((value,)) for value in range(128))
"""The one-byte varints, by value."""


SMALL_ARRAY = 16
"""Arrays of fewer numbers than this, such as replica lists, use a precompiled struct."""


class FieldError(Exception):
    """The field that is being decoded or encoded is invalid. The text of this error does not name the field; `codec.py`
    adds the path of the field.
    """


def uvarint(value: int) -> bytes:
    """An unsigned varint: seven bits in each byte, the lowest bits first."""
    if value < 128:
        return UVARINTS[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """The varint at `pos`, and the position after it. Raises FieldError above 32 bits, IndexError past the end."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        if shift == 28 and byte > 0x0F:
            raise FieldError("a varint is longer than 5 bytes or larger than 32 bits")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7


def skip_tags(buf: Buffer, pos: int, end: int, count: int) -> int:
    """Skip `count` unknown tagged fields; returns the position after them."""
    last = -1
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        if tag <= last:
            raise FieldError(f"tagged field {tag} comes after {last}")
        last = tag
        size, pos = read_uvarint(buf, pos)
        if size > end - pos:
            raise FieldError(f"tagged field {tag} claims {size} bytes of the {end - pos} left")
        pos += size
    return pos


@cache
def array_structs(code: str) -> tuple[struct.Struct, ...]:
    """The structs of 0, 1, 2, ... numbers with this format code."""
    return tuple(struct.Struct(f">{count}{code}") for count in range(SMALL_ARRAY))


@cache
def array_packers(code: str) -> tuple[Callable[..., bytes], ...]:
    """The `pack` methods of the structs of `array_structs`, by the number of elements."""
    return tuple(each.pack for each in array_structs(code))


@cache
def array_unpackers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """The `unpack_from` methods of the structs of `array_structs`, by the number of elements."""
    return tuple(each.unpack_from for each in array_structs(code))


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes. Cached, because the same topic ids recur and constructing a UUID is slow."""
    return UUID(bytes=raw)
