"""Builds OTLP messages, as clients push them."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(number: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(body)) + body


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def integer(field: int, value: int) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<q", value)


def attribute(field: int, key: str, value: bytes) -> bytes:
    return message(field, message(1, key.encode()), message(2, value))


def gauge(name: str, *points: bytes) -> bytes:
    return message(2, message(1, name.encode()), message(5, *(message(1, point) for point in points)))


def total(name: str, *points: bytes, delta: bool) -> bytes:
    temporality = number(2, 1 if delta else 2)
    return message(2, message(1, name.encode()), message(7, *(message(1, point) for point in points), temporality))


def histogram(name: str, point: bytes) -> bytes:
    return message(2, message(1, name.encode()), message(9, message(1, point), number(2, 2)))


def data(*metrics: bytes) -> bytes:
    return message(1, message(2, *metrics))
