"""Port: what the sinks need of a database: one connection, and the description of a table.

    driver   prepare   the ledger is created, orphaned stages are dropped
    tasks    stage     `create_stage`, `load` ..., `finish_stages`: the target tables do not change
    driver   publish   tables are created and get new columns; then, in ONE transaction: the row of the ledger is
                       locked, the staged rows are applied to the tables, the ledger moves. At last the stages are
                       dropped.

A stage is a table of the database (or, for a database with one writer, a file that `open_stages` makes readable as a
table). Its columns are ORDER, DELETED, STEP, and then c0, c1, ... (`stage_column`), since the names of the rows'
columns could collide with the first three. A column has the type that it has in the target table, so that a value that
does not fit is refused while its record is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Final, Protocol

from msgspec import Struct

from barnabas.spark.connectors.sql.dialects import Statement

ORDER: Final = "r_order"
DELETED: Final = "r_deleted"
STEP: Final = "r_step"
"""The columns of a stage besides those of the rows: integers; `deleted` is 0 or 1 (`TableRows` says what they mean)."""


def stage_column(index: int) -> str:
    """The name of a column of the rows in a stage."""
    return f"c{index}"


class ColumnKind(Enum):
    """What a column of a table holds: how values are written for it."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    LOCAL_TIMESTAMP = "local timestamp"  # without a time zone: its zone is db.timezone
    INSTANT = "instant"  # a timestamp with a time zone
    JSON = "json"
    ARRAY = "array"
    OTHER = "other"  # the database reads its texts


class TableColumn(Struct, frozen=True):
    """A column of a table. `type` is written as in CREATE TABLE, with all that the type of a stage needs.

    `has_default` is true if the database fills the column of a row that has no value for it: a default, an identity, a
    generated column. Limits are None if there are none: `length` counts characters, `size` bytes; `bits` is that of a
    signed integer, or of an unsigned one if `unsigned`. `element` is the kind of an array's elements.
    """

    name: str
    type: str
    kind: ColumnKind
    nullable: bool = True
    has_default: bool = False
    length: int | None = None
    size: int | None = None
    bits: int | None = None
    unsigned: bool = False
    precision: int | None = None
    scale: int | None = None
    element: ColumnKind | None = None


class SqlTable(Struct, frozen=True):
    """A table that exists. `unique_keys` are the columns of each unique key that an upsert can use, the primary key
    first. `problem` says why the table cannot be written, with what to do; it is empty if it can.
    """

    path: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    unique_keys: tuple[tuple[str, ...], ...] = ()
    problem: str = ""

    def column(self, name: str) -> TableColumn | None:
        return next((column for column in self.columns if column.name == name), None)


class StageTable(Struct, frozen=True):
    """What one attempt stages for one table and one set of columns. `names` are those of the rows' columns, and
    `columns` the columns of the stage for them (c0, c1, ...).
    """

    name: str
    names: tuple[str, ...]
    columns: tuple[TableColumn, ...]


class SinkSession(Protocol):
    """One connection to a database. Errors of the driver are DatabaseSinkErrors (`errors.py`)."""

    @property
    def key_collation(self) -> str:
        """The collation of texts in the keys of tables that are created, by which texts are equal if their bytes are;
        empty if that is the database's own."""

    def describe(self, path: tuple[str, ...]) -> SqlTable | None:
        """The table, or None if there is none."""

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        """The rows of a query; `doing` begins the message of an error, as in "reading the ledger"."""

    def run(self, statement: Statement, doing: str) -> None:
        """Run a statement without rows."""

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction that commits at the end, and is rolled back by an exception. Outside of it, each statement is
        a transaction of its own."""

    def create_stage(self, stage: StageTable) -> None:
        """Begin to stage rows."""

    def load(self, stage: StageTable, rows: Any) -> None:
        """Add rows: an Arrow batch with the columns of the stage, ORDER, DELETED and STEP as integers and the others
        as texts for the columns' kinds (`values.py`). Raises RefusedRowsError if the database does not accept a value;
        then none of these rows is staged, and the session can go on.
        """

    def finish_stages(self) -> None:
        """Make the stages of this session durable and visible to other sessions."""

    def open_stages(self, stages: Sequence[StageTable]) -> None:
        """Make stages readable as tables of this session, before the transaction that applies them."""

    def list_stages(self) -> list[str]:
        """The names of all stages."""

    def drop_stages(self, names: Sequence[str]) -> None:
        """Remove stages; those that do not exist are left out."""

    def close(self) -> None:
        """Close the connection. Raises nothing."""
