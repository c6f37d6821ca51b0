"""Codec: messages of the output plugin pgoutput, protocol version 1 with logical messages, as `data` of
`pg_logical_slot_peek_binary_changes` has them.

All numbers are big-endian; a string ends with a zero byte and is UTF-8 (client_encoding=UTF8).

    B  i64 final LSN, i64 time, i32 xid
    C  i8 0, i64 commit LSN, i64 end LSN, i64 time
    O  i64 origin LSN, string name
    R  i32 oid, string schema ("" is pg_catalog), string table, i8 identity, i16 n, n x column
       column: i8 1 if in the replica identity, string name, i32 type oid, i32 typmod
    Y  i32 type oid, string schema, string name
    I  i32 oid, 'N', tuple
    U  i32 oid, optional ('K' or 'O', tuple), 'N', tuple
    D  i32 oid, 'K' or 'O', tuple
    T  i32 n, i8 (1 cascade, 2 restart identity), n x i32 oid
    M  i8 1 if transactional, i64 LSN, string prefix, i32 length, bytes
    tuple: i16 n, n x ('n' null | 'u' unchanged TOAST value | 't' i32 length, text)

Row messages (I, U, D) of one relation are decoded together, column by column (`decode_rows`); all other messages one by
one (`decode_message`). An unknown message, a malformed one, and one with bytes left over are errors.
Source: PostgreSQL's manual, section "Logical Replication Message Formats"; `src/backend/replication/logical/proto.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from barnabas.client.columns.byte_column import np, pa, validity_buffer
from barnabas.spark.connectors.postgres.errors import PgoutputError
from barnabas.spark.connectors.postgres.lsn import format_lsn
from barnabas.spark.connectors.postgres.messages import (
    Begin,
    Column,
    Commit,
    LogicalMessage,
    Origin,
    PgoutputMessage,
    Relation,
    ReplicaIdentity,
    Truncate,
    TypeName,
)
from barnabas.spark.connectors.postgres.pgoutput_kernels import (
    NO_TUPLE,
    PROBLEMS,
    UNCHANGED,
    copy_values,
    find_values,
)

EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970-01-01."""

COLUMNS_MAX: Final = 1664
"""MaxTupleAttributeNumber of PostgreSQL: no row has more columns."""

INSERT: Final = ord("I")
UPDATE: Final = ord("U")
DELETE: Final = ord("D")
ROW_TAGS: Final = frozenset((INSERT, UPDATE, DELETE))

_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">bQQq")
_I64: Final = struct.Struct(">Q")
_OID: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">h")
_TYPE: Final = struct.Struct(">Ii")
_TRUNCATE: Final = struct.Struct(">iB")
_IDENTITIES: Final = {identity.value: identity for identity in ReplicaIdentity}
_LATER: Final = dict.fromkeys(b"SEcA", "streaming (protocol version 2)") | dict.fromkeys(
    b"bPKpr", "two-phase commit (protocol version 3)"
)


class _Reader:
    """Reads one message from the position after its tag on, and reports each error with its position."""

    __slots__ = ("_at", "_data", "_lsn")

    def __init__(self, lsn: int, data: bytes) -> None:
        self._lsn = lsn
        self._data = data
        self._at = 1

    def error(self, problem: str) -> PgoutputError:
        return message_error(self._lsn, self._data, self._at, problem)

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        if len(self._data) - self._at < form.size:
            raise self.error(f"{form.size} bytes are needed, {len(self._data) - self._at} are left")
        values = form.unpack_from(self._data, self._at)
        self._at += form.size
        return values

    def byte(self) -> int:
        if self._at >= len(self._data):
            raise self.error("one byte is needed, none is left")
        self._at += 1
        return self._data[self._at - 1]

    def string(self) -> str:
        end = self._data.find(0, self._at)
        if end < 0:
            raise self.error("a string has no zero byte at its end")
        try:
            text = self._data[self._at : end].decode()
        except UnicodeDecodeError as error:
            raise self.error("a string is not UTF-8: set client_encoding to UTF8") from error
        self._at = end + 1
        return text

    def bytes(self) -> bytes:
        (length,) = self.unpack(_OID)
        if length > len(self._data) - self._at:
            raise self.error(f"{length} bytes are needed, {len(self._data) - self._at} are left")
        self._at += length
        return self._data[self._at - length : self._at]

    def check_count(self, count: int, size_min: int) -> None:
        """Check a number of items of at least `size_min` bytes each against the bytes that are left."""
        left = len(self._data) - self._at
        if count < 0 or count * size_min > left:
            raise self.error(f"{count} items of at least {size_min} bytes cannot be in the {left} bytes that are left")

    def end(self) -> None:
        if self._at != len(self._data):
            raise self.error(f"{len(self._data) - self._at} bytes are left over after the message")


def message_error(lsn: int, data: bytes, position: int, problem: str) -> PgoutputError:
    """The error of one message: its type, its LSN, and the position of the problem in it."""
    tag = chr(data[0]) if data else ""
    return PgoutputError(
        f"the message {tag!r} at LSN {format_lsn(lsn)} is malformed at byte {position} of {len(data)}: {problem}."
        " The slot is unchanged; check that its plugin is pgoutput and that it is read with proto_version 1"
    )


def decode_message(lsn: int, data: bytes) -> PgoutputMessage:
    """Decode one message that is not a row message. `lsn` is that of the row of the peek; it is for errors only.

    Raises PgoutputError if the message is malformed or unknown.
    """
    if not data:
        raise message_error(lsn, data, 0, "the message is empty")
    decode = _DECODERS.get(data[0])
    if decode is None:
        feature = _LATER.get(data[0])
        if feature is not None:
            raise message_error(lsn, data, 0, f"it belongs to {feature}, which was not requested")
        raise message_error(lsn, data, 0, "its type is unknown")
    reader = _Reader(lsn, data)
    message = decode(reader)
    reader.end()
    return message


def _begin(reader: _Reader) -> Begin:
    final_lsn, time, xid = reader.unpack(_BEGIN)
    return Begin(final_lsn, time + EPOCH_US, xid)


def _commit(reader: _Reader) -> Commit:
    flags, commit_lsn, end_lsn, time = reader.unpack(_COMMIT)
    if flags:
        raise reader.error(f"the flags of a commit are 0 in version 1, not {flags}")
    return Commit(commit_lsn, end_lsn, time + EPOCH_US)


def _origin(reader: _Reader) -> Origin:
    (lsn,) = reader.unpack(_I64)
    return Origin(lsn, reader.string())


def _schema(reader: _Reader) -> str:
    return reader.string() or "pg_catalog"


def _relation(reader: _Reader) -> Relation:
    (oid,) = reader.unpack(_OID)
    schema, table = _schema(reader), reader.string()
    letter = chr(reader.byte())
    identity = _IDENTITIES.get(letter)
    if identity is None:
        raise reader.error(f"{letter!r} is no replica identity (d, n, f, i)")
    columns = []
    (count,) = reader.unpack(_COUNT)
    reader.check_count(count, size_min=10)
    if count > COLUMNS_MAX:
        raise reader.error(f"a table has at most {COLUMNS_MAX} columns, not {count}")
    for _ in range(count):
        in_key, name = reader.byte(), reader.string()
        if in_key > 1:
            raise reader.error(f"the flags of a column are 0 or 1, not {in_key}")
        type_oid, typmod = reader.unpack(_TYPE)
        columns.append(Column(name, type_oid, typmod, in_key == 1))
    return Relation(oid, schema, table, identity, tuple(columns))


def _type(reader: _Reader) -> TypeName:
    (oid,) = reader.unpack(_OID)
    return TypeName(oid, _schema(reader), reader.string())


def _truncate(reader: _Reader) -> Truncate:
    count, flags = reader.unpack(_TRUNCATE)
    if flags > 3:
        raise reader.error(f"the flags of a truncate are at most 3, not {flags}")
    reader.check_count(count, size_min=4)
    oids = tuple(oid for _ in range(count) for oid in reader.unpack(_OID))
    return Truncate(oids, bool(flags & 1), bool(flags & 2))


def _logical_message(reader: _Reader) -> LogicalMessage:
    flags = reader.byte()
    if flags > 1:
        raise reader.error(f"the flags of a logical message are 0 or 1, not {flags}")
    (lsn,) = reader.unpack(_I64)
    return LogicalMessage(flags == 1, lsn, reader.string(), reader.bytes())


_DECODERS: Final[dict[int, Callable[[_Reader], PgoutputMessage]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("T"): _truncate,
    ord("M"): _logical_message,
}


def relation_oid(lsn: int, data: bytes) -> int:
    """The oid of the relation of a row message. Raises PgoutputError if the message is too short to have one."""
    if len(data) < 5:
        raise message_error(lsn, data, len(data), "it ends before the oid of its table")
    return int.from_bytes(data[1:5], "big")


class Tuples(Struct, frozen=True):
    """The old or the new rows of a run of changes, column by column.

    `values` has one Arrow binary array for each column, with the text form of each value; null where the value is
    null, unchanged or absent. `unchanged` has, for each column, None or a numpy array that is true where the value is
    an unchanged TOAST value, which the server does not send. `present` is false for the rows without such a tuple.
    """

    values: tuple[Any, ...]
    unchanged: tuple[Any, ...]
    present: Any


class Rows(Struct, frozen=True):
    """Decoded row messages of one relation: `tags` (uint8, the letters I, U, D) and the tuples after and before.

    `old_full` is true for a row whose old tuple has all columns (O), false for a key (K) or none.
    """

    tags: Any
    new: Tuples
    old: Tuples
    old_full: Any

    def __len__(self) -> int:
        return len(self.tags)


def decode_rows(columns: int, lsns: Sequence[int], messages: Sequence[bytes]) -> Rows:
    """Decode row messages of one relation, which has this number of columns.

    Memory is about the size of the messages plus 24 bytes for each value. Raises PgoutputError if a message is
    malformed, or does not have this number of columns, and ValueError if the messages are 2 GiB or more together.
    """
    size = sum(map(len, messages))
    if size >= 1 << 31:
        raise ValueError(f"{len(messages)} row messages have {size} bytes together: decode at most 2 GiB at a time")
    rows = len(messages)
    data = np.frombuffer(b"".join(messages), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, rows))
    tags = np.zeros(rows, np.uint8)
    old_tags = np.zeros(rows, np.uint8)
    at = np.zeros((2, columns, rows), np.int64)
    lengths = np.full((2, columns, rows), NO_TUPLE, np.int32)
    row, position, problem = find_values(data, ends, tags, old_tags, at, lengths)
    if problem:
        raise message_error(lsns[row], messages[row], position, PROBLEMS[problem].format(columns=columns))
    new = _tuples(data, at[0], lengths[0], tags != DELETE)
    old = _tuples(data, at[1], lengths[1], old_tags != 0)
    return Rows(tags, new, old, old_tags == ord("O"))


def _tuples(data: Any, at: Any, lengths: Any, present: Any) -> Tuples:
    columns, rows = at.shape
    if not present.any():
        return Tuples((pa.nulls(rows, pa.binary()),) * columns, (None,) * columns, present)
    values, unchanged = [], []
    for column in range(columns):
        length = lengths[column]
        values.append(_binary(data, at[column], length))
        mask = length == UNCHANGED
        unchanged.append(mask if mask.any() else None)
    return Tuples(tuple(values), tuple(unchanged), present)


def _binary(data: Any, at: Any, lengths: Any) -> Any:
    rows = len(at)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    content = np.empty(int(offsets[-1]), np.uint8)
    copy_values(data, at, lengths, offsets, content)
    present = lengths >= 0
    return pa.Array.from_buffers(
        pa.binary(), rows, [validity_buffer(present), pa.py_buffer(offsets), pa.py_buffer(content)]
    )
