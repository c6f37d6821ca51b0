"""Shell: DuckDB as a database that can be polled, by the package duckdb.

While a process has a file open for writing, no other process can open it, and while others read it, nobody can write.
So the file is open during a poll only, and a poll that finds it locked is repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from barnabas import __version__
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.events.changes import ColumnSchema, TableSchema
from barnabas.spark.connectors.polling.counted_history import CountedHistory, file_mark, read_head
from barnabas.spark.connectors.polling.duckdb_values import is_text, staged_type, to_column
from barnabas.spark.connectors.polling.errors import DatabaseLockedError, PolledTableError, PollingError
from barnabas.spark.connectors.polling.options import PollingOptions, TableKind, parse_polling_options
from barnabas.spark.connectors.polling.output import QUERY, make_polled_output, polled_columns
from barnabas.spark.connectors.polling.ports import PolledColumns
from barnabas.spark.connectors.polling.source import PollingSource
from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_for_display
from barnabas.spark.connectors.sql.polling import PolledTable, TimeForm
from barnabas.spark.identities import Marks

ROWS_AT_ONCE: Final = 50_000
_HEADER_BYTES: Final = 4096
_DIGITS: Final = {"TIMESTAMP_S": 0, "TIMESTAMP_MS": 3}
_TABLES: Final = (
    "SELECT table_schema, table_name, table_type FROM information_schema.tables"
    " WHERE table_catalog = current_database()"
)


def parse_duckdb(texts: Mapping[str, str]) -> CaptureOptions:
    """Raises OptionError."""
    return _parse(texts).capture


def _parse(texts: Mapping[str, str]) -> PollingOptions:
    return parse_polling_options(texts, Dialect.DUCKDB)


def open_duckdb(options: CaptureOptions) -> PollingSource:
    """The source of these options, which opens the file when a method is called."""
    parsed = _parse(options.given.texts)
    return PollingSource(parsed, DuckdbDatabase(parsed.address.database))


DUCKDB: Final = Connector(
    "barnabas.duckdb",
    "duckdb",
    __version__,
    (),
    {},
    open_duckdb,
    parse=parse_duckdb,
    columns=polled_columns,
    output=make_polled_output,
)


def _driver() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise PollingError("the package duckdb is not installed: pip install 'barnabas[duckdb]'") from error
    return duckdb


class DuckdbDatabase(CountedHistory):
    """A PolledDatabase."""

    lost: tuple[type[Exception], ...] = (DatabaseLockedError,)

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: Any = None

    def list_tables(self, kinds: frozenset[TableKind]) -> list[tuple[str, ...]]:
        wanted = {"BASE TABLE": TableKind.TABLE, "VIEW": TableKind.VIEW}
        rows = self.rows(Statement(_TABLES), "listing the tables")
        return [(schema, table) for schema, table, kind in rows if wanted.get(kind) in kinds]

    def describe(self, table: PolledTable) -> PolledColumns:
        name = "the query" if table.query is not None else ".".join(table.path)
        doing = f"reading the columns of {name}"
        with self._readable(doing) as connection:
            described = connection.sql(f"SELECT * FROM {table.source} LIMIT 0")
            arrow = described.to_arrow_table().schema
        not_null = set()
        if table.query is None:
            found = self.rows(Statement(f"DESCRIBE {table.source}"), doing)
            not_null = {row[0] for row in found if row[2] == "NO"}
        columns: list[ColumnSchema] = []
        selected = []
        for column, declared, field in zip(described.columns, described.types, arrow, strict=True):
            kind = None if is_text(declared) else staged_type(field.type)
            quoted = quote_for_display(Dialect.DUCKDB, column)
            selected.append(quoted if kind is not None else f"CAST({quoted} AS VARCHAR)")
            digits = _DIGITS.get(str(declared))
            columns.append(ColumnSchema(column, kind or pa.string(), column not in not_null, digits=digits))
        zoned = frozenset(one.name for one in columns if pa.types.is_timestamp(one.type) and one.type.tz is not None)
        forms = {
            one.name: TimeForm.TIMESTAMPTZ if one.name in zoned else TimeForm.TIMESTAMP
            for one in columns
            if pa.types.is_timestamp(one.type)
        }
        schema, shown = ("", QUERY) if table.query is not None else (table.path[0], table.path[-1])
        described_table = TableSchema(Path(self._path).stem, schema, shown, tuple(columns), ())
        return PolledColumns(described_table, ", ".join(selected), forms, zoned)

    def marks(self, table: PolledTable) -> Marks:
        """The file. DuckDB numbers its tables anew whenever the file is opened, and so has nothing that tells a table
        from one that is created again in the same file."""
        return {"file": file_mark(Path(self._path))}

    def count(self) -> int | None:
        """The number of checkpoints, in the newer one of the two headers; None if the file is encrypted. Source:
        DuckDB's `single_file_block_manager.cpp`."""
        begin = read_head(Path(self._path), 3 * _HEADER_BYTES)
        if len(begin) < 3 * _HEADER_BYTES or begin[8:12] != b"DUCK" or struct.unpack_from("<Q", begin, 20)[0] & 1:
            return None
        return max(int(struct.unpack_from("<Q", begin, place * _HEADER_BYTES + 8)[0]) for place in (1, 2))

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        with self._readable(doing) as connection:
            found: list[tuple[Any, ...]] = connection.execute(statement.sql, statement.parameters).fetchall()
            return found

    def batches(self, statement: Statement, columns: PolledColumns, doing: str) -> Iterator[Any]:
        names = [column.name for column in columns.schema.columns]
        with self._readable(doing) as connection:
            reader = connection.execute(statement.sql, statement.parameters).to_arrow_reader(ROWS_AT_ONCE)
            for batch in reader:
                arrays = [
                    to_column(array, column.type, column.name)
                    for array, column in zip(batch.columns, columns.schema.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    def end_poll(self) -> None:
        self.close()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _connection(self) -> Any:
        if self._opened is None:
            path = Path(self._path).absolute()
            if not path.is_file():
                raise PollingError(f"there is no database file {path}: correct connection.url")
            self._opened = _driver().connect(str(path), read_only=True)
            self._opened.execute("SET TimeZone = 'UTC'")
        return self._opened

    @contextmanager
    def _readable(self, doing: str) -> Iterator[Any]:
        duckdb = _driver()
        try:
            yield self._connection()
        except duckdb.Error as error:
            text = f"{doing} failed: {str(error).partition(chr(10))[0]}"
            if "lock" in str(error) or "different configuration" in str(error):
                raise DatabaseLockedError(
                    f"{text}. DuckDB lets one process write, and no other one read meanwhile: close the file in the"
                    " process that writes, after each of its transactions, or raise connection.attempts"
                ) from error
            if isinstance(error, duckdb.CatalogException):
                raise PolledTableError(f"{text}: correct table.whitelist or query") from error
            raise PollingError(f"{text}: correct the table, the query or the options that it names") from error
