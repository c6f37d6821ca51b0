"""Value: row changes of one table in columns, as every source of changes gives them to the events.

Rows of different tables are put into one order by their ordinals, which are dense and ascend in the order of commits
and, inside a transaction, of statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field

CREATE: Final = ord("c")
UPDATE: Final = ord("u")
DELETE: Final = ord("d")
READ: Final = ord("r")
TRUNCATE: Final = ord("t")
"""The codes of `ChangeBatch.op`: the letters of the field `op` of an event."""


class Meaning(StrEnum):
    """What the text, bytes or number of a column stands for, if the Arrow type alone does not say it."""

    PLAIN = "plain"
    JSON = "json"
    XML = "xml"
    UUID = "uuid"
    ENUM = "enum"
    SET = "set"
    BITS = "bits"  # binary, big-endian
    YEAR = "year"
    TIME = "time"  # int64: microseconds, may be negative (MySQL's TIME)
    ZONED_TIME = "zoned_time"  # text
    NUMERIC = "numeric"  # text of a number with any number of digits, or NaN


class ColumnSchema(Struct, frozen=True):
    """A column of a table. `type` is its Arrow type, `length` the number of bits of a BITS column.

    `digits` is the number of digits of a second's fraction that the column keeps (None: 6), `allowed` the values of an
    enum or set.
    """

    name: str
    type: Any
    nullable: bool = True
    meaning: Meaning = Meaning.PLAIN
    length: int = 0
    digits: int | None = None
    allowed: tuple[str, ...] = ()


class TableSchema(Struct, frozen=True):
    """A table. `schema` is empty for MySQL. `key` has the indexes of the key columns; it is empty without a key.
    `unpublished` names columns that the table has, and the database leaves out of its changes.
    """

    database: str
    schema: str
    table: str
    columns: tuple[ColumnSchema, ...]
    key: tuple[int, ...]
    unpublished: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The name of the table in transaction metadata: schema.table, or database.table for MySQL."""
        return f"{self.schema or self.database}.{self.table}"


class PostgresPositions(Struct, frozen=True):
    """Where changes come from in PostgreSQL, one element of each numpy array for each row.

    `last_commit_lsn` is the commit LSN of the transaction before, or the position at which the read begins; it and
    `xid` are -1 for rows of a snapshot. `origin` is the name of the replication origin, with its LSN in `origin_lsn`,
    if the rows have one.
    """

    lsn: Any
    last_commit_lsn: Any
    xid: Any
    origin: str | None = None
    origin_lsn: int | None = None


class MySqlPositions(Struct, frozen=True):
    """Where changes come from in MySQL or MariaDB, one element of each list or numpy array for each row.

    `gtid` and `file` are Arrow string arrays. `row` is the number of the row in its event, from 0. `thread` is -1 and
    `query` null if unknown.
    """

    server_id: Any
    gtid: Any
    file: Any
    pos: Any
    row: Any
    thread: Any = None
    query: Any = None


class NoPositions(Struct, frozen=True):
    """The positions of rows that are not from a history of changes, such as those of a polled table."""


class ChangeBatch(Struct, frozen=True):
    """Changes of one table while it had one schema. All arrays have one element for each row.

    `op` (uint8) is CREATE, UPDATE, DELETE, READ or TRUNCATE. `before` and `after` are Arrow struct arrays with the
    table's columns, null where the row has none; `before` is None if no row has one, and `after` likewise. Columns of
    an old row that a server did not send are null. `unavailable` gives for the index of a column the rows (numpy, bool)
    whose new value the server did not send.

    `ts_us` is the time of the commit, in microseconds since 1970. `transaction` is the identity of the row's
    transaction (Arrow strings, null for rows of a snapshot), or None if events have no transaction metadata.
    `total_order` and `table_order` count events from 1 in the transaction, and in the transaction and the table; the
    create that follows from a changed key has the next numbers. `snapshot` has words such as true, last, or false for
    changes.

    A TRUNCATE has neither `before` nor `after`. It is in a batch whose table has no columns: not every database says
    which columns a truncated table had.
    """

    table: TableSchema
    op: Any
    before: Any
    after: Any
    ordinal: Any
    ts_us: Any
    positions: PostgresPositions | MySqlPositions | NoPositions
    key_changed: Any = None
    unavailable: Mapping[int, Any] = field(default_factory=dict)
    transaction: Any = None
    total_order: Any = None
    table_order: Any = None
    snapshot: Any = None

    def __len__(self) -> int:
        return len(self.op)


class ChangedTransaction(Struct, frozen=True):
    """A transaction for the transaction topic: its identity, time, and events by table (`TableSchema.id`)."""

    id: str
    ts_us: int
    event_counts: tuple[tuple[str, int], ...]
