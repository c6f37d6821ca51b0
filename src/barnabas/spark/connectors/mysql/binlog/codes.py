"""Table: the numbers of the binlog's format: types of events and columns, flags, fields of optional metadata.

Sources: MySQL's mysql/binlog/event/binlog_event.h, rows_event.h and field_types.h; MariaDB's log_event.h.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class EventType(IntEnum):
    """The type of an event: the fifth byte of its header."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    DELETE_FILE = 11
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171


class ChangeKind(IntEnum):
    """What a rows event does to each of its rows."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


class BinlogColumnType(IntEnum):
    """The type of a column in a TABLE_MAP event. Types that only old versions write are `REFUSED_COLUMN_TYPES`."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


ROWS_EVENTS: Final = {
    EventType.WRITE_ROWS_V1: (ChangeKind.INSERT, 1, False),
    EventType.UPDATE_ROWS_V1: (ChangeKind.UPDATE, 1, False),
    EventType.DELETE_ROWS_V1: (ChangeKind.DELETE, 1, False),
    EventType.WRITE_ROWS: (ChangeKind.INSERT, 2, False),
    EventType.UPDATE_ROWS: (ChangeKind.UPDATE, 2, False),
    EventType.DELETE_ROWS: (ChangeKind.DELETE, 2, False),
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1: (ChangeKind.INSERT, 1, True),
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1: (ChangeKind.UPDATE, 1, True),
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1: (ChangeKind.DELETE, 1, True),
    EventType.MARIADB_WRITE_ROWS_COMPRESSED: (ChangeKind.INSERT, 2, True),
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: (ChangeKind.UPDATE, 2, True),
    EventType.MARIADB_DELETE_ROWS_COMPRESSED: (ChangeKind.DELETE, 2, True),
}
"""For each type of rows event: what the event does, the version of its layout, and whether its rows are compressed."""

STATEMENT_PARAMETERS: Final = frozenset(
    (
        EventType.INTVAR,
        EventType.RAND,
        EventType.USER_VAR,
        EventType.BEGIN_LOAD_QUERY,
        EventType.EXECUTE_LOAD_QUERY,
        EventType.APPEND_BLOCK,
        EventType.DELETE_FILE,
    )
)
"""Events that only statement-based logging writes: they parametrise a statement that changes rows."""

WITHOUT_CHANGES: Final = frozenset(
    (
        EventType.STOP,
        EventType.IGNORABLE,
        EventType.TRANSACTION_CONTEXT,
        EventType.VIEW_CHANGE,
        EventType.MARIADB_BINLOG_CHECKPOINT,
    )
)
"""Events that a server writes for itself or for its replicas, and that never carry a change of a row."""

NUMERIC: Final = frozenset(
    (
        BinlogColumnType.TINY,
        BinlogColumnType.SHORT,
        BinlogColumnType.INT24,
        BinlogColumnType.LONG,
        BinlogColumnType.LONGLONG,
        BinlogColumnType.NEWDECIMAL,
        BinlogColumnType.FLOAT,
        BinlogColumnType.DOUBLE,
        BinlogColumnType.YEAR,
    )
)
"""The columns that have a bit in the field SIGNEDNESS."""

CHARACTER: Final = frozenset(
    (BinlogColumnType.STRING, BinlogColumnType.VAR_STRING, BinlogColumnType.VARCHAR, BinlogColumnType.BLOB)
)
"""The columns that have a character set in the optional metadata. MariaDB counts GEOMETRY, and MySQL VECTOR, too."""

REFUSED_COLUMN_TYPES: Final = {
    BinlogColumnType.DECIMAL: "DECIMAL of MySQL 4",
    BinlogColumnType.TIMESTAMP: "TIMESTAMP in the format before MySQL 5.6",
    BinlogColumnType.TIME: "TIME in the format before MySQL 5.6",
    BinlogColumnType.DATETIME: "DATETIME in the format before MySQL 5.6",
}
"""Types of columns that only old versions write, and that `ALTER TABLE ... FORCE` converts."""

FLAG_BINLOG_IN_USE: Final = 0x1
FLAG_ARTIFICIAL: Final = 0x20
FLAG_IGNORABLE: Final = 0x80

GTID_STANDALONE: Final = 0x1
"""MariaDB: the event group is one event, so that no COMMIT or XID follows."""
GTID_DDL: Final = 0x20
GTID_PREPARED_XA: Final = 0x40
GTID_COMPLETED_XA: Final = 0x80


class MetadataField(IntEnum):
    """The optional metadata of a TABLE_MAP event (binlog_row_metadata)."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_STR_VALUE = 5
    ENUM_STR_VALUE = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12
    VECTOR_DIMENSIONALITY = 13
