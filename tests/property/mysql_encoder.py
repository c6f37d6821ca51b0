"""A small encoder of binlog events, written from the documented layouts, for tests of the decoder."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from msgspec import Struct

from barnabas.spark.connectors.mysql.binlog.codes import BinlogColumnType

SERVER_ID = 7
TIMESTAMP = 1_700_000_000
MYSQL = "8.4.2"
MARIADB = "10.11.6-MariaDB-log"


def packed(number: int) -> bytes:
    """A length-encoded integer."""
    if number < 0xFB:
        return bytes([number])
    if number < 1 << 16:
        return b"\xfc" + number.to_bytes(2, "little")
    if number < 1 << 24:
        return b"\xfd" + number.to_bytes(3, "little")
    return b"\xfe" + number.to_bytes(8, "little")


def packed_text(text: str, encoding: str = "utf-8") -> bytes:
    raw = text.encode(encoding)
    return packed(len(raw)) + raw


def event(kind: int, body: bytes, log_pos: int = 0, *, flags: int = 0, crc: bool = True) -> bytes:
    """An event with its header and, if `crc`, its checksum."""
    size = 19 + len(body) + (4 if crc else 0)
    head = struct.pack("<IBIIIH", TIMESTAMP, kind, SERVER_ID, size, log_pos, flags)
    raw = head + body
    return raw + zlib.crc32(raw).to_bytes(4, "little") if crc else raw


def format_description(version: str = MYSQL, algorithm: int = 1, log_pos: int = 126) -> bytes:
    body = struct.pack("<H50sIB", 4, version.encode(), TIMESTAMP, 19) + bytes(41) + bytes([algorithm])
    return event(15, body, log_pos)


def query(statement: str, log_pos: int = 0, database: str = "shop", *, crc: bool = True) -> bytes:
    status = b"\x00\x00\x00\x00\x00\x01" + bytes(8) + b"\x04\x2d\x00\x2d\x00\x2d\x00"  # utf8mb4_general_ci
    head = struct.pack("<IIBHH", 5, 0, len(database), 0, len(status))
    return event(2, head + status + database.encode() + b"\0" + statement.encode(), log_pos, crc=crc)


def gtid(number: int, log_pos: int = 0, uuid: bytes = bytes(range(16))) -> bytes:
    body = b"\x01" + uuid + number.to_bytes(8, "little") + b"\x02" + bytes(16)
    return event(33, body + (TIMESTAMP * 10**6).to_bytes(7, "little") + packed(500), log_pos)


def mariadb_gtid(sequence: int, flags: int, log_pos: int = 0) -> bytes:
    return event(162, struct.pack("<QIB", sequence, 0, flags) + bytes(6), log_pos)


def xid(log_pos: int = 0, *, crc: bool = True) -> bytes:
    return event(16, bytes(8), log_pos, crc=crc)


class EncodedColumn(Struct):
    """A column of a table to be encoded: the type and metadata as TABLE_MAP has them."""

    name: str
    type: int
    meta: bytes = b""
    unsigned: bool = False
    collation: int = 0
    members: tuple[str, ...] = ()


_NUMERIC = (1, 2, 3, 4, 5, 8, 9, 13, 246)
_CHARACTER = (15, 252, 253)


def table_map(
    columns: Sequence[EncodedColumn],
    log_pos: int = 0,
    *,
    table_id: int = 42,
    key: Sequence[int] = (0,),
    described: bool = True,
    crc: bool = True,
) -> bytes:
    """A TABLE_MAP event of MySQL for the table shop.t."""
    metas = b"".join(column.meta for column in columns)
    body = table_id.to_bytes(6, "little") + b"\x01\x00" + b"\x04shop\x00\x01t\x00" + packed(len(columns))
    body += bytes(column.type for column in columns) + packed(len(metas)) + metas
    body += b"\xff" * ((len(columns) + 7) // 8)
    if described:
        body += b"".join(bytes([field]) + packed(len(value)) + value for field, value in _fields(columns, key))
    return event(19, body, log_pos, crc=crc)


def _is_members(column: EncodedColumn) -> bool:
    return column.type == 254 and column.meta[:1] in (b"\xf7", b"\xf8")


def _fields(columns: Sequence[EncodedColumn], key: Sequence[int]) -> list[tuple[int, bytes]]:
    numeric = [column.unsigned for column in columns if column.type in _NUMERIC]
    bits = bytearray((len(numeric) + 7) // 8)
    for i, unsigned in enumerate(numeric):
        bits[i >> 3] |= unsigned << (7 - (i & 7))
    characters = [c.collation for c in columns if c.type in _CHARACTER or (c.type == 254 and not _is_members(c))]
    members = [column for column in columns if _is_members(column)]
    result = [(1, bytes(bits)), (3, b"".join(map(packed, characters)))]
    result.append((4, b"".join(packed_text(column.name) for column in columns)))
    for field, mark in ((5, b"\xf8"), (6, b"\xf7")):
        chosen = [column for column in members if column.meta[:1] == mark]
        values = b"".join(packed(len(c.members)) + b"".join(packed_text(m) for m in c.members) for c in chosen)
        result.append((field, values))
    result += [(8, b"".join(map(packed, key))), (11, b"".join(packed(column.collation) for column in members))]
    return [(field, value) for field, value in result if value]


def image(cells: Sequence[bytes | None]) -> bytes:
    """A row image: which cells are null, then the others."""
    nulls = sum(1 << i for i, cell in enumerate(cells) if cell is None)
    return nulls.to_bytes((len(cells) + 7) // 8, "little") + b"".join(cell for cell in cells if cell is not None)


def rows(
    kind: int,
    width: int,
    images: Sequence[bytes],
    log_pos: int = 0,
    *,
    table_id: int = 42,
    flags: int = 1,
    bitmaps: Sequence[int] = (),
    crc: bool = True,
) -> bytes:
    """A rows event of version 2 (30 insert, 31 update, 32 delete) or version 1 (23, 24, 25)."""
    size = (width + 7) // 8
    masks = bitmaps or [(1 << width) - 1] * (2 if kind in (24, 31) else 1)
    body = table_id.to_bytes(6, "little") + flags.to_bytes(2, "little")
    body += b"\x02\x00" if kind >= 30 else b""
    body += packed(width) + b"".join(mask.to_bytes(size, "little") for mask in masks) + b"".join(images)
    return event(kind, body, log_pos, crc=crc)


def decimal_cell(unscaled: int, precision: int, scale: int) -> bytes:
    """A DECIMAL(precision, scale) cell with the value `unscaled * 10 ** -scale`."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    digits = f"{abs(unscaled):0{precision}d}"
    whole, part = digits[: precision - scale], digits[precision - scale :]
    first = len(whole) % 9
    groups = [whole[:first]] + [whole[i : i + 9] for i in range(first, len(whole), 9)]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    raw = bytearray(b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group))
    if unscaled < 0:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    raw[0] ^= 0x80
    return bytes(raw)


def datetime_cell(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micros: int = 0, digits: int = 6
) -> bytes:
    """A DATETIME(digits) cell."""
    whole = ((year * 13 + month) << 5 | day) << 17 | hour << 12 | minute << 6 | second
    size = (digits + 1) // 2
    unit = (1, 10_000, 100, 1)[size]
    return (whole + 0x8000000000).to_bytes(5, "big") + (micros // unit).to_bytes(size, "big")


def time_cell(micros: int, digits: int = 6) -> bytes:
    """A TIME(digits) cell."""
    size = (digits + 1) // 2
    unit = (1, 10_000, 100, 1)[size]
    seconds, fraction = divmod(abs(micros), 10**6)
    clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    whole = (clock << 8 * size) + fraction // unit
    return ((0x800000 << 8 * size) + (whole if micros >= 0 else -whole)).to_bytes(3 + size, "big")


INT = EncodedColumn("id", BinlogColumnType.LONG)
TEXT = EncodedColumn("name", BinlogColumnType.VARCHAR, (400).to_bytes(2, "little"), collation=255)


def int_cell(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def text_cell(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2, "little") + raw
