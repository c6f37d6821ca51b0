"""Shell: SQLite as a database that can be polled, by Python's own module sqlite3.

The file is opened read-only. Its journal mode decides if reads wait for writers: in WAL mode they do not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from barnabas import __version__
from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.events.changes import ColumnSchema, TableSchema
from barnabas.spark.connectors.option_rows import ConnectorOption
from barnabas.spark.connectors.polling.counted_history import CountedHistory, file_mark, read_head
from barnabas.spark.connectors.polling.errors import DatabaseLockedError, PolledTableError, PollingError
from barnabas.spark.connectors.polling.options import PollingOptions, TableKind, parse_polling_options
from barnabas.spark.connectors.polling.output import QUERY, make_polled_output, polled_columns
from barnabas.spark.connectors.polling.ports import PolledColumns
from barnabas.spark.connectors.polling.source import PollingSource
from barnabas.spark.connectors.polling.sqlite_values import (
    TIMESTAMP,
    DatePrecision,
    TimeRules,
    declared_type,
    to_column,
)
from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_for_display
from barnabas.spark.connectors.sql.polling import PolledTable, TimeForm
from barnabas.spark.identities import Marks

BUSY_SECONDS: Final = 5.0
"""How long a statement waits for a writer before the source tries again."""
ROWS_AT_ONCE: Final = 20_000
_COUNTER: Final = slice(24, 28)
_DEFAULT: Final = TimeRules()
_VIEW: Final = "barnabas_polled_query"

SQLITE_OPTIONS: Final = (
    ConnectorOption(
        "date_precision",
        "unit of times that are stored as integers: `seconds` or `milliseconds`",
        parse_as.one_of(DatePrecision),
        DatePrecision.MILLISECONDS,
    ),
)


def parse_sqlite(texts: Mapping[str, str]) -> CaptureOptions:
    """Raises OptionError."""
    return _parse(texts).capture


def _parse(texts: Mapping[str, str]) -> PollingOptions:
    return parse_polling_options(texts, Dialect.SQLITE, SQLITE_OPTIONS)


def open_sqlite(options: CaptureOptions) -> PollingSource:
    """The source of these options, which opens the file when a method is called."""
    parsed = _parse(options.given.texts)
    return PollingSource(
        parsed, SqliteDatabase(parsed.address.database, TimeRules(parsed.given.get("date_precision"), parsed.zone))
    )


SQLITE: Final = Connector(
    "barnabas.sqlite",
    "sqlite",
    __version__,
    SQLITE_OPTIONS,
    {},
    open_sqlite,
    parse=parse_sqlite,
    columns=polled_columns,
    output=make_polled_output,
)


class SqliteDatabase(CountedHistory):
    """A PolledDatabase."""

    lost: tuple[type[Exception], ...] = (DatabaseLockedError,)

    def __init__(self, path: str, times: TimeRules = _DEFAULT) -> None:
        self._path = path
        self._times = times
        self._opened: sqlite3.Connection | None = None
        self._file = ""

    def list_tables(self, kinds: frozenset[TableKind]) -> list[tuple[str, ...]]:
        names = ", ".join(f"'{kind.value.lower()}'" for kind in sorted(kinds))
        sql = f"SELECT name FROM sqlite_master WHERE type IN ({names}) AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        return [(name,) for (name,) in self.rows(Statement(sql), "listing the tables")]

    def describe(self, table: PolledTable) -> PolledColumns:
        name, schema = (_VIEW, "temp") if table.query is not None else (table.path[-1], "main")
        if table.query is not None:
            self._create_view(table.query)
        quoted = quote_for_display(Dialect.SQLITE, name)
        found = self.rows(Statement(f"PRAGMA {schema}.table_xinfo({quoted})"), f"reading the columns of {name}")
        found = [row for row in found if row[6] != 1]  # hidden columns of virtual tables
        if not found:
            raise PolledTableError(f"there is no table {name} in {self._path}: correct table.whitelist")
        columns: list[ColumnSchema] = []
        forms: dict[str, TimeForm] = {}
        unknown: set[str] = set()
        rowid = [row[1] for row in found if row[5]]
        for _, column, declared, not_null, _, key, _ in found:
            storage = self._storage(table, column)
            kind = declared_type(declared or "", storage)
            is_rowid = bool(key) and len(rowid) == 1 and (declared or "").upper() == "INTEGER"
            columns.append(ColumnSchema(column, kind, not (not_null or is_rowid)))
            form = self._form(kind, storage)
            if form is not None:
                forms[column] = form
            elif not storage:
                unknown.add(column)
        selected = ", ".join(quote_for_display(Dialect.SQLITE, column.name) for column in columns)
        shown = QUERY if table.query is not None else name
        return PolledColumns(
            TableSchema(Path(self._path).stem, "main", shown, tuple(columns), ()),
            selected,
            forms,
            unknown=frozenset(unknown),
        )

    def _create_view(self, query: str) -> None:
        with self._readable("reading the query") as connection:
            connection.execute(f"DROP VIEW IF EXISTS temp.{_VIEW}")
            connection.execute(f"CREATE TEMP VIEW {_VIEW} AS {query.strip().rstrip(';')}")

    def _storage(self, table: PolledTable, column: str) -> str:
        """typeof() of a value of a column; empty if it has none."""
        quoted = quote_for_display(Dialect.SQLITE, column)
        sql = f"SELECT typeof({quoted}) FROM {table.source} WHERE {quoted} IS NOT NULL LIMIT 1"
        rows = self.rows(Statement(sql), f"reading the column {column}")
        return str(rows[0][0]) if rows else ""

    def _form(self, kind: Any, storage: str) -> TimeForm | None:
        """The form of a column's times; None if it has no values, or can have no times."""
        if storage == "text" and (kind == TIMESTAMP or pa.types.is_string(kind) or pa.types.is_date(kind)):
            return TimeForm.ISO_TEXT
        if storage in ("integer", "real") and (kind == TIMESTAMP or pa.types.is_integer(kind)):
            return TimeForm.SECONDS if self._times.precision is DatePrecision.SECONDS else TimeForm.MILLISECONDS
        return None

    def marks(self, table: PolledTable) -> Marks:
        """The file, and the number of changes of its schema: a table that is created again changes it."""
        ((version,),) = self.rows(Statement("PRAGMA schema_version"), "reading the version of the schema")
        return {"file": self._file, "schema": str(version)}

    def count(self) -> int | None:
        """The file change counter. Source: SQLite's "Database File Format", 1.3.7."""
        return int.from_bytes(read_head(Path(self._path), _COUNTER.stop)[_COUNTER])

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        with self._readable(doing) as connection:
            return connection.execute(statement.sql, statement.parameters).fetchall()

    def batches(self, statement: Statement, columns: PolledColumns, doing: str) -> Iterator[Any]:
        names = [column.name for column in columns.schema.columns]
        with self._readable(doing) as connection:
            cursor = connection.execute(statement.sql, statement.parameters)
            while page := cursor.fetchmany(ROWS_AT_ONCE):
                arrays = [
                    to_column(values, column.type, column.name, self._times)
                    for values, column in zip(zip(*page, strict=True), columns.schema.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    def end_poll(self) -> None:
        """Does nothing: an open file without a transaction keeps no writer out."""

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _connection(self) -> sqlite3.Connection:
        """A connection to the file that has the name now."""
        path = Path(self._path).absolute()
        if not path.is_file():
            raise PollingError(f"there is no database file {path}: correct connection.url")
        if self._file != (file := file_mark(path)):
            self.close()
        if self._opened is None:
            self._file = file
            self._opened = sqlite3.connect(
                f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None
            )
        return self._opened

    @contextmanager
    def _readable(self, doing: str) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection()
        except sqlite3.Error as error:
            text = f"{doing} failed: {error}"
            if "locked" in str(error) or "busy" in str(error):
                raise DatabaseLockedError(
                    f"{text} ({self._path}): another process is writing, and keeps the file locked. End its"
                    " transaction; or run PRAGMA journal_mode=WAL once, after which reads do not wait for writers"
                ) from error
            if "not a database" in str(error) or "malformed" in str(error):
                raise PollingError(f"{text}: {self._path} is no intact SQLite file: correct connection.url") from error
            raise PollingError(f"{text}: correct the table, the query or the options that it names") from error
