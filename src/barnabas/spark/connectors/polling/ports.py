"""Port: what a database supplies so that its tables can be polled (`source.py`).

A database is used by one thread. Errors are SparkSourceErrors whose messages say what to do. `lost` names those after
which the source connects again and repeats a poll.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from barnabas.spark.connectors.events.changes import TableSchema
from barnabas.spark.connectors.polling.options import TableKind
from barnabas.spark.connectors.sql.dialects import Statement
from barnabas.spark.connectors.sql.polling import PolledTable, TimeForm
from barnabas.spark.identities import Marks


class PolledColumns(Struct, frozen=True):
    """The columns of a table or query: their Arrow types, and what follows SELECT so that `batches` can read them.

    `forms` has the columns that can be timestamps, with the form of their times; a column whose form depends on its
    rows is not there before it has one, and is in `unknown`. `zoned` has the columns whose times have a zone, or are in
    UTC.
    """

    schema: TableSchema
    selected: str
    forms: Mapping[str, TimeForm] = field(default_factory=dict)
    zoned: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()


class PolledDatabase(Protocol):
    """A connection to a database, which is opened when a method needs it."""

    lost: tuple[type[Exception], ...]

    def list_tables(self, kinds: frozenset[TableKind]) -> list[tuple[str, ...]]:
        """The tables that the user may read, each with its schema or database: (schema, table), or (table,)."""

    def describe(self, table: PolledTable) -> PolledColumns:
        """The columns of a table or query. Raises PolledTableError if there is no such table."""

    def marks(self, table: PolledTable) -> Marks:
        """What tells a table from another one of its name (`spark/identities.py`); for a query or a view, what tells
        its server or file from another one. A mark may also change when the database rewrites the table: the reader
        then compares the last row that it has read.
        """

    def moment(self, table: PolledTable) -> Marks:
        """How far the history has come that the database keeps, for `gap`; empty if it keeps none. It is stored beside
        the marks, under other names. All rows that were read before are in the history up to there.
        """

    def gap(self, stored: Marks, found: Marks) -> str | None:
        """None if the table with the marks `found` is the one that was read: it has the same marks, or the database's
        history goes through the moment that was stored with the marks; and it is no older copy of that one. Otherwise
        what is known about it, as sentences for an error, or "".
        """

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        """All rows of a statement with few rows; `doing` is for errors, such as "reading the end of orders"."""

    def batches(self, statement: Statement, columns: PolledColumns, doing: str) -> Iterator[Any]:
        """The rows of a statement that selects `columns.selected`, as Arrow record batches of the schema's types."""

    def end_poll(self) -> None:
        """Called after each poll: a database that keeps others out while it is open is closed."""

    def close(self) -> None:
        """Close the connection; repeated calls do nothing."""
