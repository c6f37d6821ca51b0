"""Codec: MySQL's binary JSON to text.

    value      1 byte type, then the value
    container  (object, array; small or large: integers of w = 2 or 4 bytes) count, size in bytes,
               objects: for each key, w bytes offset and 2 bytes length;
               for each element, 1 byte type and w bytes offset or the value itself, if it fits; keys; values
    string     length in groups of seven bits, UTF-8
    opaque     1 byte type of column, length as of a string, bytes

Offsets count from the container's `count`. Source: MySQL's sql-common/json_binary.h. The text has MySQL's own spacing,
`{"a": [1, 2]}`. No other JSON type of a server has a binary form: MariaDB's is a LONGTEXT.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Final

from barnabas.spark.connectors.mysql.binlog.codes import BinlogColumnType
from barnabas.spark.connectors.mysql.binlog.decimals import binary_size, decode_one

_DEPTH_MAX: Final = 100  # MySQL's limit
_LITERALS: Final = ("null", "true", "false")
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15
_INTEGERS: Final = {5: (2, True), 6: (2, False), 7: (4, True), 8: (4, False), 9: (8, True), 10: (8, False)}


def decode_json(raw: bytes) -> str:
    """The text of a JSON cell. A cell without bytes is null, as the server reads it. Raises ValueError for bytes that
    are not binary JSON."""
    if not raw:
        return "null"
    return _JsonReader(raw).value(raw[0], 1, 0)


class _JsonReader:
    """Reads one document. `_budget` bounds the work: every element and every byte of a string is in the document once,
    so that offsets that point to the same place again and again are found out."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._budget = 2 * len(raw) + 16

    def _spend(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise ValueError("parts of the JSON document overlap")

    def _take(self, at: int, size: int) -> bytes:
        if at < 0 or at + size > len(self._raw):
            raise ValueError(f"the JSON document ends at byte {len(self._raw)}, inside a value at byte {at}")
        return self._raw[at : at + size]

    def _uint(self, at: int, size: int) -> int:
        return int.from_bytes(self._take(at, size), "little")

    def _length(self, at: int) -> tuple[int, int]:
        """A length in groups of seven bits, the lowest first, and the position behind it."""
        length = 0
        for k in range(5):
            byte = self._take(at + k, 1)[0]
            length |= (byte & 0x7F) << 7 * k
            if byte < 0x80:
                return length, at + k + 1
        raise ValueError(f"the length at byte {at} of the JSON document does not end")

    def value(self, kind: int, at: int, depth: int) -> str:
        """The text of the value of a type at a position."""
        self._spend(1)
        if kind <= _LARGE_ARRAY:
            return self._container(kind, at, depth)
        if kind == _LITERAL:
            code = self._uint(at, 1)
            if code > 2:
                raise ValueError(f"the JSON document has the literal {code}")
            return _LITERALS[code]
        if kind in _INTEGERS:
            size, signed = _INTEGERS[kind]
            return str(int.from_bytes(self._take(at, size), "little", signed=signed))
        if kind == _DOUBLE:
            number: float = struct.unpack("<d", self._take(at, 8))[0]
            if number - number != 0:
                raise ValueError(f"the JSON document has the number {number}")
            return repr(number)
        if kind == _STRING:
            size, begin = self._length(at)
            return self._text(begin, size)
        if kind == _OPAQUE:
            column_type = self._uint(at, 1)
            size, begin = self._length(at + 1)
            self._spend(size)
            return _opaque(column_type, self._take(begin, size))
        raise ValueError(f"the JSON document has a value of the type {kind}")

    def _text(self, at: int, size: int) -> str:
        self._spend(size)
        return json.dumps(self._take(at, size).decode(), ensure_ascii=False)

    def _container(self, kind: int, at: int, depth: int) -> str:
        if depth >= _DEPTH_MAX:
            raise ValueError(f"the JSON document is deeper than {_DEPTH_MAX} levels")
        wide = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
        is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
        count, size = self._uint(at, wide), self._uint(at + wide, wide)
        self._take(at, size)
        entries = at + 2 * wide + (count * (wide + 2) if is_object else 0)
        if entries + count * (wide + 1) > at + size:
            raise ValueError(f"{count} elements do not fit the {size} bytes of a JSON object or array")
        parts = []
        for i in range(count):
            entry = entries + i * (wide + 1)
            element = self._raw[entry]
            inlined = element in (_LITERAL, 5, 6) or (wide == 4 and element in (7, 8))
            where = entry + 1 if inlined else at + self._uint(entry + 1, wide)
            text = self.value(element, where, depth + 1)
            if is_object:
                key = at + 2 * wide + i * (wide + 2)
                text = f"{self._text(at + self._uint(key, wide), self._uint(key + wide, 2))}: {text}"
            parts.append(text)
        return f"{{{', '.join(parts)}}}" if is_object else f"[{', '.join(parts)}]"


def _opaque(column_type: int, raw: bytes) -> str:
    """The text of a value that JSON has no type for: a number for DECIMAL, otherwise a string as MySQL prints it."""
    if column_type == BinlogColumnType.NEWDECIMAL:
        if len(raw) < 2 or not 0 < raw[0] <= 65 or raw[1] > raw[0] or len(raw) - 2 != binary_size(raw[0], raw[1]):
            raise ValueError("the JSON document has a DECIMAL of the wrong size")
        return decode_one(raw[2:], raw[0], raw[1])
    if column_type in (
        BinlogColumnType.DATE,
        BinlogColumnType.DATETIME,
        BinlogColumnType.TIMESTAMP,
        BinlogColumnType.TIME,
    ):
        if len(raw) != 8:
            raise ValueError(f"the JSON document has a date of {len(raw)} bytes")
        return json.dumps(_moment(column_type, int.from_bytes(raw, "little", signed=True)))
    return json.dumps(f"base64:type{column_type}:{base64.b64encode(raw).decode()}")


def _moment(column_type: int, packed: int) -> str:
    """A date or time from the server's packed form: date and time of day, then 24 bits of microseconds."""
    sign = "-" if packed < 0 else ""
    whole, micros = abs(packed) >> 24, abs(packed) & 0xFFFFFF
    if column_type == BinlogColumnType.TIME:
        return f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    months, day = whole >> 22, whole >> 17 & 31
    date = f"{months // 13:04d}-{months % 13:02d}-{day:02d}"
    if column_type == BinlogColumnType.DATE:
        return date
    return f"{date} {whole >> 12 & 31:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
