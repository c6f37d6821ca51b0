"""A small encoder of pgoutput messages, written from the layouts in PostgreSQL's manual, for tests of the decoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from barnabas.spark.connectors.postgres.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Origin,
    PgoutputMessage,
    Relation,
    Truncate,
    TypeName,
)

EPOCH_US: Final = 946_684_800_000_000


class Unchanged:
    """The marker of an unchanged TOAST value in a row."""


UNCHANGED: Final = Unchanged()
Row = Sequence[bytes | Unchanged | None]


def _string(text: str) -> bytes:
    return text.encode() + b"\0"


def _schema(name: str) -> bytes:
    return _string("" if name == "pg_catalog" else name)


def encode(message: PgoutputMessage) -> bytes:
    """The bytes of a message that is not a row message."""
    match message:
        case Begin():
            return b"B" + struct.pack(">QqI", message.final_lsn, message.commit_time_us - EPOCH_US, message.xid)
        case Commit():
            time = message.commit_time_us - EPOCH_US
            return b"C\0" + struct.pack(">QQq", message.commit_lsn, message.end_lsn, time)
        case Origin():
            return b"O" + struct.pack(">Q", message.origin_lsn) + _string(message.name)
        case TypeName():
            return b"Y" + struct.pack(">I", message.oid) + _schema(message.schema) + _string(message.name)
        case Truncate():
            flags = message.cascade | message.restart_identity << 1
            oids = struct.pack(f">{len(message.oids)}I", *message.oids)
            return b"T" + struct.pack(">iB", len(message.oids), flags) + oids
        case LogicalMessage():
            head = struct.pack(">BQ", message.transactional, message.lsn)
            length = struct.pack(">I", len(message.content))
            return b"M" + head + _string(message.prefix) + length + message.content
        case Relation():
            columns = b"".join(
                bytes([one.in_key]) + _string(one.name) + struct.pack(">Ii", one.type_oid, one.typmod)
                for one in message.columns
            )
            name = _schema(message.schema) + _string(message.table) + message.identity.encode()
            return b"R" + struct.pack(">I", message.oid) + name + struct.pack(">h", len(message.columns)) + columns


def _tuple(row: Row) -> bytes:
    out = struct.pack(">H", len(row))
    for value in row:
        if value is None:
            out += b"n"
        elif isinstance(value, Unchanged):
            out += b"u"
        else:
            out += b"t" + struct.pack(">I", len(value)) + value
    return out


def insert(oid: int, new: Row) -> bytes:
    """An INSERT of this row."""
    return b"I" + struct.pack(">I", oid) + b"N" + _tuple(new)


def update(oid: int, new: Row, *, key: Row | None = None, old: Row | None = None) -> bytes:
    """An UPDATE with the old key, the old row, or neither."""
    before = b"K" + _tuple(key) if key is not None else b"O" + _tuple(old) if old is not None else b""
    return b"U" + struct.pack(">I", oid) + before + b"N" + _tuple(new)


def delete(oid: int, *, key: Row | None = None, old: Row | None = None) -> bytes:
    """A DELETE with the old key or the old row."""
    before = b"K" + _tuple(key) if key is not None else b"O" + _tuple(old if old is not None else [])
    return b"D" + struct.pack(">I", oid) + before
