"""Value: the events of a binlog, decoded. `decoder.py` decodes them.

Every event has `end`, its position: the 64-bit offset in its binlog file behind the event (for an event inside a
compressed transaction: behind the compressed event), and `timestamp`, seconds since 1970 by the server's clock.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.spark.connectors.mysql.binlog.codes import ChangeKind


class EventHeader(Struct, frozen=True):
    """The first 19 bytes of an event. `log_pos` is the low 32 bits of the position behind the event, 0 if none."""

    timestamp: int
    type: int
    server_id: int
    size: int
    log_pos: int
    flags: int


class Event(Struct, frozen=True, kw_only=True):
    """What all events have in common."""

    timestamp: int
    server_id: int
    end: int


class FormatDescription(Event, frozen=True, kw_only=True):
    """FORMAT_DESCRIPTION: begins each file. `checksums` says whether the file's events end with a CRC32."""

    server_version: str
    mariadb: bool
    checksums: bool
    post_header_sizes: bytes


class Rotate(Event, frozen=True, kw_only=True):
    """ROTATE: the next event is at `position` of the file `file`. A server sends an artificial one first of all."""

    file: str
    position: int


class Gtid(Event, frozen=True, kw_only=True):
    """GTID of MySQL: begins a transaction. `commit_us` is the commit's time at its original server, in microseconds,
    and `transaction_bytes` the transaction's size, each 0 if the server does not write it."""

    uuid: str
    number: int
    commit_us: int
    transaction_bytes: int


class AnonymousGtid(Event, frozen=True, kw_only=True):
    """ANONYMOUS_GTID: begins a transaction on a MySQL server without GTIDs."""

    commit_us: int
    transaction_bytes: int


class PreviousGtids(Event, frozen=True, kw_only=True):
    """PREVIOUS_GTIDS: the transactions in earlier files. The intervals are (first, last), both inclusive."""

    intervals: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


class MariadbGtid(Event, frozen=True, kw_only=True):
    """GTID of MariaDB: begins an event group `domain-server-sequence`."""

    domain: int
    sequence: int
    flags: int


class MariadbGtidList(Event, frozen=True, kw_only=True):
    """GTID_LIST of MariaDB: the last (domain, server id, sequence) of each domain and server in earlier files."""

    gtids: tuple[tuple[int, int, int], ...]


class Query(Event, frozen=True, kw_only=True):
    """QUERY: a statement as text: BEGIN, COMMIT, SAVEPOINT, DDL, or a change of rows that was logged as statement."""

    thread_id: int
    error_code: int
    database: str
    statement: str


class Xid(Event, frozen=True, kw_only=True):
    """XID: commits a transaction of a transactional storage engine."""

    xid: int


class XaPrepare(Event, frozen=True, kw_only=True):
    """XA_PREPARE: ends a branch of an XA transaction, and commits it if `one_phase`."""

    one_phase: bool


class BinlogColumn(Struct, frozen=True):
    """One column of a TABLE_MAP event.

    `type` is a `BinlogColumnType`, with ENUM and SET resolved from STRING. `meta` depends on the type: the largest
    length in bytes (VARCHAR, STRING), the number of bytes of the length (BLOB, JSON, GEOMETRY), the number of
    fractional digits (TIME2, DATETIME2, TIMESTAMP2), `precision << 8 | scale` (NEWDECIMAL), the number of bits (BIT),
    the number of bytes (ENUM, SET). `values` are the members of an ENUM or SET, None if they are unknown. `collation`
    is 0 for columns without characters, and 63 for binary strings. `unreadable` is an error message if the type of the
    column is unknown, otherwise empty.
    """

    name: str
    type: int
    meta: int
    nullable: bool
    unsigned: bool = False
    collation: int = 0
    values: tuple[str, ...] | None = None
    visible: bool = True
    unreadable: str = ""


class BinlogTable(Struct, frozen=True):
    """A table as a TABLE_MAP event describes it.

    `described` is false if the server does not write the metadata of binlog_row_metadata=FULL; then the columns have
    no names, and their rows cannot be decoded. `primary_key` has the indexes of the key's columns in the key's order.
    `unreadable` is an error message if the event itself cannot be read, and the table has no columns then; otherwise
    `unreadable` is empty.
    """

    database: str
    name: str
    columns: tuple[BinlogColumn, ...]
    primary_key: tuple[int, ...]
    described: bool
    unreadable: str = ""


class TableMap(Event, frozen=True, kw_only=True):
    """TABLE_MAP: the next rows events with this `table_id` are of `table`, as it is at this point of the binlog.

    A decoder returns the same object `table` as long as the table's description stays the same.
    """

    table_id: int
    table: BinlogTable


class RowsEvent(Event, frozen=True, kw_only=True):
    """WRITE_ROWS, UPDATE_ROWS or DELETE_ROWS: rows of one table as bytes, which `rows.py` decodes.

    `before` and `after` are bitmaps of the columns that the row images have: the n-th lowest bit stands for the n-th
    column. An INSERT has no image before (None), a DELETE none after. `data` is the rows, one behind the other.
    `begin` is the position before the event; inside a compressed transaction, before the compressed event.
    """

    begin: int
    kind: ChangeKind
    table_id: int
    ends_statement: bool
    width: int
    before: int | None
    after: int | None
    data: bytes


class RowsQuery(Event, frozen=True, kw_only=True):
    """ROWS_QUERY of MySQL, ANNOTATE_ROWS of MariaDB: the statement that caused the next rows events."""

    statement: str


class TransactionPayload(Event, frozen=True, kw_only=True):
    """TRANSACTION_PAYLOAD: a transaction's events (without its GTID), which the server had compressed."""

    events: tuple[Event, ...]


class Heartbeat(Event, frozen=True, kw_only=True):
    """HEARTBEAT: the server is alive and has sent everything up to `end` of `file`. It is in no file."""

    file: str


class Incident(Event, frozen=True, kw_only=True):
    """INCIDENT: the server may have lost events, for the reason `message`."""

    code: int
    message: str


class StatementParameter(Event, frozen=True, kw_only=True):
    """INTVAR, RAND, USER_VAR and the events of LOAD DATA: only statement-based logging writes them."""

    name: str


class WithoutChanges(Event, frozen=True, kw_only=True):
    """An event that carries no change of a row: a server's own note, or one that is flagged ignorable."""

    type: int
