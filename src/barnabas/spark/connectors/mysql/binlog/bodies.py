"""Codec: the bodies of all events but TABLE_MAP (`table_map.py`). Each layout is drawn above its function.

All integers are little-endian; "packed" is a length-encoded integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.spark.connectors.mysql.binlog.charsets import decode_text, python_encoding
from barnabas.spark.connectors.mysql.binlog.codes import (
    ROWS_EVENTS,
    STATEMENT_PARAMETERS,
    WITHOUT_CHANGES,
    ChangeKind,
    EventType,
)
from barnabas.spark.connectors.mysql.binlog.cursor import EventCursor
from barnabas.spark.connectors.mysql.binlog.events import (
    AnonymousGtid,
    BinlogTable,
    Event,
    FormatDescription,
    Gtid,
    Heartbeat,
    Incident,
    MariadbGtid,
    MariadbGtidList,
    PreviousGtids,
    Query,
    Rotate,
    RowsEvent,
    RowsQuery,
    StatementParameter,
    TableMap,
    WithoutChanges,
    XaPrepare,
    Xid,
)
from barnabas.spark.connectors.mysql.binlog.inflating import inflate_mariadb, inflate_payload
from barnabas.spark.connectors.mysql.binlog.table_map import decode_table
from barnabas.spark.connectors.mysql.errors import UnsupportedBinlogError

Common = dict[str, int]


class Context(Struct, frozen=True):
    """What the body of an event is decoded with: its type, the file's format, and the limit for inflated bytes.

    `tables` has the tables that were decoded before, by their bytes: a server describes a table in every statement.
    `begin` is the position before the event.
    """

    type: int
    format: FormatDescription
    inflated_bytes_max: int
    tables: dict[bytes, BinlogTable]
    begin: int


_TABLES_MAX: Final = 1000
_CHECKSUM_CRC32: Final = 1
_FIRST_WITH_CHECKSUMS: Final = (5, 6, 1)


# 2 bytes version of the format, 50 bytes version of the server, 4 bytes time, 1 byte size of headers,
# one byte for each type of event (the size of the first part of its body), 1 byte algorithm of checksums, 4 bytes CRC32
def decode_format(cursor: EventCursor, common: Common) -> FormatDescription:
    """A FORMAT_DESCRIPTION. `cursor` includes the checksum. Raises UnsupportedBinlogError for servers before 5.6."""
    version = cursor.uint(2)
    server_version = cursor.text(cursor.take(50).rstrip(b"\0"))
    cursor.skip(4)
    header_bytes = cursor.uint(1)
    mariadb = "mariadb" in server_version.lower()
    numbers = tuple(int(part) for part in re.findall(r"\d+", server_version)[:3])
    if version != 4 or header_bytes != 19 or (numbers < _FIRST_WITH_CHECKSUMS and not mariadb):
        raise UnsupportedBinlogError(
            f"{cursor.where}: the binlog was written by version {server_version} in format {version}; MySQL 5.6 or "
            "MariaDB 10 and newer, which write format 4, can be read"
        )
    if cursor.left < 5 + EventType.XID:
        raise cursor.error(f"the FORMAT_DESCRIPTION ends after {cursor.left} bytes of sizes")
    sizes = cursor.take(cursor.left - 5)
    algorithm = cursor.uint(1)
    if algorithm not in (0, _CHECKSUM_CRC32):
        raise UnsupportedBinlogError(
            f"{cursor.where}: the checksums are of the unknown kind {algorithm}. Run SET GLOBAL "
            "binlog_checksum = 'CRC32'"
        )
    return FormatDescription(
        **common,
        server_version=server_version,
        mariadb=mariadb,
        checksums=algorithm == _CHECKSUM_CRC32,
        post_header_sizes=sizes,
    )


# 8 bytes position, file name
def _rotate(cursor: EventCursor, common: Common, context: Context) -> Event:
    position = cursor.uint(8)
    return Rotate(**common, position=position, file=cursor.text(cursor.rest()))


# 1 byte flags, 16 bytes uuid, 8 bytes number; since 5.7: 1 byte 2, 8 bytes last committed, 8 bytes sequence number;
# since 8.0: 7 bytes time of the commit here (highest bit: a second time follows, of the commit at the original server),
# packed bytes of the transaction, versions of the servers
def _gtid(cursor: EventCursor, common: Common, context: Context) -> Event:
    cursor.skip(1)
    uuid = str(UUID(bytes=cursor.take(16)))
    number = cursor.uint(8)
    commit_us = transaction_bytes = 0
    if cursor.left >= 24 and cursor.uint(1) == 2:
        cursor.skip(16)
        commit_us = cursor.uint(7)
        if commit_us >> 55:
            commit_us = cursor.uint(7)
        if cursor.left:
            transaction_bytes = cursor.packed_int()
    if context.type == EventType.ANONYMOUS_GTID:
        return AnonymousGtid(**common, commit_us=commit_us, transaction_bytes=transaction_bytes)
    if not 0 < number < 1 << 63:
        raise cursor.error(f"the GTID {uuid}:{number} is not possible")
    return Gtid(**common, uuid=uuid, number=number, commit_us=commit_us, transaction_bytes=transaction_bytes)


def _tagged_gtid(cursor: EventCursor, common: Common, context: Context) -> Event:
    raise UnsupportedBinlogError(
        f"{cursor.where}: the transaction has a tagged GTID (uuid:tag:number, MySQL 8.3 and newer), which Barnabas "
        "does not read. Run SET gtid_next = 'AUTOMATIC' instead of 'AUTOMATIC:tag' in the writing sessions, and start "
        "from a new snapshot"
    )


# 8 bytes number of uuids; for each: 16 bytes uuid, 8 bytes number of intervals, for each: 8 bytes first, 8 bytes end.
# With tags (MySQL 8.3), the highest byte of the first field is 1.
def _previous_gtids(cursor: EventCursor, common: Common, context: Context) -> Event:
    uuids = cursor.uint(8)
    if uuids >> 56:
        raise UnsupportedBinlogError(
            f"{cursor.where}: gtid_executed has tagged GTIDs (uuid:tag:number, MySQL 8.3 and newer), which Barnabas "
            "does not read. Capture a server without tagged GTIDs, or capture by file and position"
        )
    if uuids * 24 > cursor.left:
        raise cursor.error(f"{uuids} sets of GTIDs do not fit")
    found = []
    for _ in range(uuids):
        uuid = str(UUID(bytes=cursor.take(16)))
        count = cursor.uint(8)
        if count * 16 > cursor.left:
            raise cursor.error(f"{count} intervals of GTIDs do not fit")
        intervals = tuple((cursor.uint(8), cursor.uint(8) - 1) for _ in range(count))
        if any(not 0 < first <= last for first, last in intervals):
            raise cursor.error("an interval of GTIDs is empty")
        found.append((uuid, intervals))
    return PreviousGtids(**common, intervals=tuple(found))


# 8 bytes sequence, 4 bytes domain, 1 byte flags, then parts that the flags announce and that no reader of rows needs
def _mariadb_gtid(cursor: EventCursor, common: Common, context: Context) -> Event:
    sequence, domain, flags = cursor.uint(8), cursor.uint(4), cursor.uint(1)
    return MariadbGtid(**common, domain=domain, sequence=sequence, flags=flags)


# 4 bytes: the low 28 bits are the count; for each: 4 bytes domain, 4 bytes server id, 8 bytes sequence
def _mariadb_gtid_list(cursor: EventCursor, common: Common, context: Context) -> Event:
    count = cursor.uint(4) & 0x0FFFFFFF
    if count * 16 > cursor.left:
        raise cursor.error(f"{count} GTIDs do not fit")
    gtids = tuple((cursor.uint(4), cursor.uint(4), cursor.uint(8)) for _ in range(count))
    return MariadbGtidList(**common, gtids=gtids)


def _start_encryption(cursor: EventCursor, common: Common, context: Context) -> Event:
    raise UnsupportedBinlogError(
        f"{cursor.where}: the rest of the file is encrypted (encrypt_binlog). A server decrypts what it sends: read "
        "the binlog from the server, not from its files"
    )


_QUERY_STATUS_SIZES: Final = {0: 4, 1: 8, 3: 4}  # flags, SQL mode, auto_increment
_QUERY_STATUS_STRINGS: Final = {2: 1, 6: 0}  # old catalog (length, string, NUL), catalog (length, string)
_QUERY_STATUS_CHARSET: Final = 4


# 4 bytes thread, 4 bytes seconds, 1 byte size of the database, 2 bytes error, 2 bytes size of the status variables,
# status variables, database, NUL, statement
def _query(cursor: EventCursor, common: Common, context: Context) -> Event:
    thread_id = cursor.uint(4)
    cursor.skip(4)
    database_bytes = cursor.uint(1)
    error_code = cursor.uint(2)
    collation = _client_collation(cursor.within(cursor.uint(2)))
    database = cursor.text(cursor.take(database_bytes))
    if cursor.uint(1) != 0:
        raise cursor.error("the name of the database does not end with NUL")
    if context.type == EventType.MARIADB_QUERY_COMPRESSED:
        raw = inflate_mariadb(cursor, context.inflated_bytes_max)
    else:
        raw = cursor.rest()
    try:
        statement = decode_text(raw, python_encoding(collation, cursor.where))
    except (UnicodeDecodeError, UnsupportedBinlogError):
        statement = raw.decode("utf-8", "backslashreplace")  # only comments and literals can be affected
    return Query(**common, thread_id=thread_id, error_code=error_code, database=database, statement=statement)


def _client_collation(status: EventCursor) -> int:
    """The collation of the client that ran a statement; 0 if the status variables do not have it near their start."""
    while status.left:
        code = status.uint(1)
        if code == _QUERY_STATUS_CHARSET:
            return status.uint(2)
        if code in _QUERY_STATUS_SIZES:
            status.skip(_QUERY_STATUS_SIZES[code])
        elif code in _QUERY_STATUS_STRINGS:
            status.skip(status.uint(1) + _QUERY_STATUS_STRINGS[code])
        else:
            break
    return 0


def _xid(cursor: EventCursor, common: Common, context: Context) -> Event:
    return Xid(**common, xid=cursor.uint(8))


def _xa_prepare(cursor: EventCursor, common: Common, context: Context) -> Event:
    return XaPrepare(**common, one_phase=bool(cursor.uint(1)))


# 6 bytes table id, 2 bytes flags, then the table: `table_map.py`
def _table_map(cursor: EventCursor, common: Common, context: Context) -> Event:
    table_id = cursor.uint(6)
    cursor.skip(2)
    key = bytes(cursor.data[cursor.at : cursor.end])
    table = context.tables.get(key)
    if table is None:
        table = decode_table(cursor, context.format.mariadb)
        if len(context.tables) >= _TABLES_MAX:
            context.tables.clear()
        context.tables[key] = table
    return TableMap(**common, table_id=table_id, table=table)


# 6 bytes table id, 2 bytes flags, version 2: 2 bytes size of more information, including these 2 bytes
# packed number of columns n, (n + 7) // 8 bytes: columns in the image before (UPDATE, DELETE) or after (INSERT)
# UPDATE: (n + 7) // 8 bytes: columns in the image after
# the rows, which MariaDB may have compressed
def _rows(cursor: EventCursor, common: Common, context: Context) -> Event:
    kind, version, compressed = ROWS_EVENTS[EventType(context.type)]
    table_id = cursor.uint(6)
    flags = cursor.uint(2)
    if version == 2:
        cursor.skip(cursor.uint(2) - 2)
    width = cursor.packed_int()
    if width > 4096:
        raise cursor.error(f"a row of {width} columns is not possible")
    bitmap = cursor.uint((width + 7) // 8)
    second = cursor.uint((width + 7) // 8) if kind == ChangeKind.UPDATE else None
    return RowsEvent(
        **common,
        begin=context.begin,
        kind=kind,
        table_id=table_id,
        ends_statement=bool(flags & 1),
        width=width,
        before=None if kind == ChangeKind.INSERT else bitmap,
        after=bitmap if kind == ChangeKind.INSERT else second,
        data=inflate_mariadb(cursor, context.inflated_bytes_max) if compressed else cursor.rest(),
    )


def _partial_update(cursor: EventCursor, common: Common, context: Context) -> Event:
    raise UnsupportedBinlogError(
        f"{cursor.where}: the update has only the changed parts of JSON columns. Run SET PERSIST "
        "binlog_row_value_options = '' (and reconnect the writing sessions), then start from a new snapshot"
    )


# 1 byte length that is not used, statement (MySQL); statement (MariaDB)
def _rows_query(cursor: EventCursor, common: Common, context: Context) -> Event:
    if context.type == EventType.ROWS_QUERY:
        cursor.skip(1)
    return RowsQuery(**common, statement=cursor.rest().decode("utf-8", "backslashreplace"))


# 2 bytes code, 1 byte length, message
def _incident(cursor: EventCursor, common: Common, context: Context) -> Event:
    code = cursor.uint(2)
    message = cursor.take(cursor.uint(1)) if cursor.left else b""
    return Incident(**common, code=code, message=message.decode("utf-8", "backslashreplace"))


# version 1: file name; version 2: fields of packed type, packed size, value: 1 file name, 2 position, 0 end
def _heartbeat(cursor: EventCursor, common: Common, context: Context) -> Event:
    if context.type == EventType.HEARTBEAT:
        return Heartbeat(**common, file=cursor.text(cursor.rest()))
    fields: dict[int, bytes] = {}
    while cursor.left:
        field = cursor.packed_int()
        if field == 0:
            break
        fields[field] = cursor.packed_bytes()
    position = EventCursor(fields[2], cursor.where).packed_int() if 2 in fields else common["end"]
    return Heartbeat(**{**common, "end": position}, file=cursor.text(fields.get(1, b"")))


def _statement_parameter(cursor: EventCursor, common: Common, context: Context) -> Event:
    return StatementParameter(**common, name=EventType(context.type).name)


def _without_changes(cursor: EventCursor, common: Common, context: Context) -> Event:
    return WithoutChanges(**common, type=context.type)


_PAYLOAD_END, _PAYLOAD_SIZE, _PAYLOAD_COMPRESSION, _PAYLOAD_INFLATED = range(4)
_PAYLOAD_ZSTD, _PAYLOAD_PLAIN = 0, 255


# fields of packed type, packed size, packed value: 1 size of the payload, 2 compression (0 zstd, 255 none), 3 inflated
# size; type 0 ends the fields; then the payload
def decode_payload(cursor: EventCursor, limit: int) -> bytes:
    """The inflated payload of a TRANSACTION_PAYLOAD event: events without checksums, one behind the other."""
    fields: dict[int, int] = {}
    while (field := cursor.packed_int()) != _PAYLOAD_END:
        if field > _PAYLOAD_INFLATED:
            raise cursor.error(f"the field {field} of a compressed transaction is unknown: upgrade Barnabas")
        fields[field] = cursor.within(cursor.packed_int()).packed_int()
    size = fields.get(_PAYLOAD_SIZE, cursor.left)
    if size != cursor.left:
        raise cursor.error(f"the payload has {cursor.left} bytes, the event declares {size}")
    compression = fields.get(_PAYLOAD_COMPRESSION, _PAYLOAD_PLAIN)
    if compression == _PAYLOAD_PLAIN:
        return cursor.rest()
    if compression != _PAYLOAD_ZSTD:
        raise UnsupportedBinlogError(
            f"{cursor.where}: the transaction is compressed in the unknown way {compression}. Run SET PERSIST "
            "binlog_transaction_compression = OFF"
        )
    if _PAYLOAD_INFLATED not in fields:
        raise cursor.error("the inflated size of the transaction is missing")
    return inflate_payload(cursor, fields[_PAYLOAD_INFLATED], limit)


BODIES: Final[dict[int, Callable[[EventCursor, Common, Context], Event]]] = {
    EventType.QUERY: _query,
    EventType.MARIADB_QUERY_COMPRESSED: _query,
    EventType.ROTATE: _rotate,
    EventType.XID: _xid,
    EventType.XA_PREPARE: _xa_prepare,
    EventType.TABLE_MAP: _table_map,
    EventType.PARTIAL_UPDATE_ROWS: _partial_update,
    EventType.INCIDENT: _incident,
    EventType.HEARTBEAT: _heartbeat,
    EventType.HEARTBEAT_V2: _heartbeat,
    EventType.ROWS_QUERY: _rows_query,
    EventType.MARIADB_ANNOTATE_ROWS: _rows_query,
    EventType.GTID: _gtid,
    EventType.ANONYMOUS_GTID: _gtid,
    EventType.GTID_TAGGED: _tagged_gtid,
    EventType.PREVIOUS_GTIDS: _previous_gtids,
    EventType.MARIADB_GTID: _mariadb_gtid,
    EventType.MARIADB_GTID_LIST: _mariadb_gtid_list,
    EventType.MARIADB_START_ENCRYPTION: _start_encryption,
    **dict.fromkeys(ROWS_EVENTS, _rows),
    **dict.fromkeys(STATEMENT_PARAMETERS, _statement_parameter),
    **dict.fromkeys(WITHOUT_CHANGES, _without_changes),
}
"""The decoder of each type of event but FORMAT_DESCRIPTION and TRANSACTION_PAYLOAD."""
