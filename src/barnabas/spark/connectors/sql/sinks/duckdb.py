"""Shell: a DuckDB file, by the package duckdb, for the sink.

While a process has the file open for writing, no other process can open it. So tasks open it, read-only, only to read
the columns of tables, and stage rows in files (`file_stages.py`); the driver opens it for each commit. A worker casts
the rows in a database in memory, so that a value that does not fit is refused while its record is known.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_for_display
from barnabas.spark.connectors.sql.sinks.errors import (
    DatabaseConflictError,
    DatabaseSinkError,
    DatabaseUnreachableError,
    RefusedRowsError,
)
from barnabas.spark.connectors.sql.sinks.file_stages import FileStages
from barnabas.spark.connectors.sql.sinks.options import SqlSinkOptions
from barnabas.spark.connectors.sql.sinks.ports import (
    DELETED,
    ORDER,
    STEP,
    ColumnKind,
    SqlTable,
    StageTable,
    TableColumn,
)
from barnabas.spark.connectors.sql.sinks.statements import display_path

log = logging.getLogger("barnabas.spark")

_DUCKDB: Final = Dialect.DUCKDB
_ROWS: Final = "staged_rows"
_K = ColumnKind
_KINDS: Final = {
    "BOOLEAN": _K.BOOLEAN,
    "FLOAT": _K.FLOAT,
    "DOUBLE": _K.FLOAT,
    "VARCHAR": _K.TEXT,
    "BLOB": _K.BYTES,
    "DATE": _K.DATE,
    "TIME": _K.TIME,
    "TIMESTAMP": _K.LOCAL_TIMESTAMP,
    "TIMESTAMP_S": _K.LOCAL_TIMESTAMP,
    "TIMESTAMP_MS": _K.LOCAL_TIMESTAMP,
    "TIMESTAMP_NS": _K.LOCAL_TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": _K.INSTANT,
    "JSON": _K.JSON,
}
_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")


class DuckdbSinkSession:
    """A SinkSession."""

    key_collation = ""

    def __init__(self, options: SqlSinkOptions) -> None:
        self._duckdb = _driver()
        self._options = options
        self._path = Path(options.address.database).absolute()
        self._stages = FileStages(options)
        self._opened: Any = None
        self._memory: Any = None
        self._writes = False
        self._opened_writes = False

    # Statements

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        with self._readable(doing) as connection:
            found: list[tuple[Any, ...]] = connection.execute(statement.sql, statement.parameters).fetchall()
            return found

    def run(self, statement: Statement, doing: str) -> None:
        self._writes = True
        with self._readable(doing) as connection:
            connection.execute(statement.sql, statement.parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._writes = True
        with self._readable("beginning a transaction") as connection:
            connection.execute("BEGIN")
        try:
            yield
            with self._readable("committing"):
                connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(self._duckdb.Error):
                connection.execute("ROLLBACK")
            raise

    def describe(self, path: tuple[str, ...]) -> SqlTable | None:
        if not self._writes and not self._path.exists() and self._options.create:
            return None
        doing = f"reading the columns of {display_path(_DUCKDB, path)}"
        schema = path[0] if len(path) == 2 else "main"
        where = "database_name = current_database() AND schema_name = ? AND {} = ?"
        given = (schema, path[-1])
        found = self.rows(
            Statement(
                "SELECT column_name, data_type, is_nullable, column_default IS NOT NULL FROM duckdb_columns()"
                f" WHERE {where.format('table_name')} ORDER BY column_index",
                given,
            ),
            doing,
        )
        views = self.rows(Statement(f"SELECT 1 FROM duckdb_views() WHERE {where.format('view_name')}", given), doing)
        keys = self.rows(
            Statement(
                "SELECT constraint_column_names FROM duckdb_constraints()"
                f" WHERE {where.format('table_name')} AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
                " ORDER BY constraint_type",
                given,
            ),
            doing,
        )
        indexes = self.rows(
            Statement(
                f"SELECT expressions FROM duckdb_indexes() WHERE {where.format('table_name')} AND is_unique", given
            ),
            doing,
        )
        if not found:
            return None
        names = {row[0] for row in found}
        keys += [(parts,) for (text,) in indexes if names.issuperset(parts := _indexed(text))]
        problem = "it is a VIEW: write to a table" if views else ""
        return SqlTable(path, tuple(_column(*row) for row in found), tuple(tuple(names) for (names,) in keys), problem)

    # Stages

    def create_stage(self, stage: StageTable) -> None:
        self._disconnect()  # the driver of another query may want to write
        self._stages.begin(stage.name)

    def load(self, stage: StageTable, rows: Any) -> None:
        if self._memory is None:
            self._memory = self._duckdb.connect(":memory:")
            self._memory.execute("SET TimeZone = 'UTC'")
        self._memory.register(_ROWS, rows)
        try:
            checks = ", ".join(f"count({_cast(column)})" for column in stage.columns)
            if checks:
                self._memory.execute(f"SELECT {checks} FROM {_ROWS}").fetchall()
        except self._duckdb.CatalogException:
            pass  # a type that only the database has
        except self._duckdb.Error as error:
            raise self._error(f"staging rows failed: {_first_line(error)}", error) from error
        finally:
            self._memory.unregister(_ROWS)
        self._stages.add(stage.name, rows)

    def finish_stages(self) -> None:
        self._stages.finish()

    def open_stages(self, stages: Sequence[StageTable]) -> None:
        self._writes = True
        for stage in stages:
            rows = self._stages.read(stage.name)
            columns = ", ".join((ORDER, DELETED, STEP, *(f"{_cast(one)} AS {one.name}" for one in stage.columns)))
            with self._readable("reading staged rows") as connection:
                connection.register(_ROWS, rows)
                name = quote_for_display(_DUCKDB, stage.name)
                connection.execute(f"CREATE TEMP TABLE {name} AS SELECT {columns} FROM {_ROWS}")
                connection.unregister(_ROWS)

    def list_stages(self) -> list[str]:
        return self._stages.names()

    def drop_stages(self, names: Sequence[str]) -> None:
        self._stages.drop(names)

    def close(self) -> None:
        self._stages.close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self._disconnect()

    def _disconnect(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # Errors

    def _connection(self) -> Any:
        """The connection, which becomes one that writes with the first statement that does."""
        if self._opened is not None and self._writes and not self._opened_writes:
            self._disconnect()
        if self._opened is None:
            if not self._path.parent.is_dir() or not (self._path.exists() or self._options.create):
                raise DatabaseSinkError(
                    f"there is no database file {self._path}: correct connection.url, or set auto.create=true"
                )
            self._opened = self._connect()
            self._opened_writes = self._writes
            self._opened.execute("SET TimeZone = 'UTC'")
        return self._opened

    def _connect(self) -> Any:
        attempts = self._options.attempts_max
        while True:
            attempts -= 1
            try:
                return self._duckdb.connect(str(self._path), read_only=not self._writes)
            except self._duckdb.Error as error:
                found = self._error(f"opening {self._path} failed: {_first_line(error)}", error)
                if attempts <= 0 or not isinstance(found, DatabaseUnreachableError):
                    raise found from error
                log.info("opening the file again in %d ms: %s", self._options.connection_backoff_ms, found)
                time.sleep(self._options.connection_backoff_ms / 1000)

    @contextmanager
    def _readable(self, doing: str) -> Iterator[Any]:
        try:
            yield self._connection()
        except self._duckdb.Error as error:
            raise self._error(f"{doing} failed: {_first_line(error)}", error) from error

    def _error(self, text: str, error: Any) -> DatabaseSinkError:
        duckdb = self._duckdb
        if isinstance(error, duckdb.IOException) and "lock" in str(error):
            return DatabaseUnreachableError(
                f"{text}. DuckDB lets one process write, and no other one read meanwhile: close the file in the other"
                " process"
            )
        if isinstance(error, duckdb.ConstraintException):
            if "uplicate key" in str(error):
                return RefusedRowsError(f"{text}: set insert.mode=upsert to change such rows, or remove them")
            return RefusedRowsError(f"{text}: change the value, or the constraint of the table")
        if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException | duckdb.InvalidInputException):
            return RefusedRowsError(f"{text}: change the value, or the column of the table")
        if isinstance(error, duckdb.TransactionException):
            return DatabaseConflictError(f"{text}: another transaction was in the way")
        return DatabaseSinkError(f"{text}: correct the cause that the database names")


def _column(name: str, written: str, nullable: bool, has_default: bool) -> TableColumn:
    decimal = _DECIMAL.fullmatch(written)
    bits = _BITS.get(written.removeprefix("U"))
    if decimal is not None:
        kind = _K.DECIMAL
    elif bits is not None:
        kind = _K.INTEGER
    elif written.endswith("]") or written.startswith(("STRUCT(", "MAP(")):
        kind = _K.JSON
    else:
        kind = _KINDS.get(written, _K.OTHER)
    return TableColumn(
        name,
        written,
        kind,
        nullable,
        has_default,
        bits=bits,
        unsigned=bits is not None and written.startswith("U"),
        precision=int(decimal[1]) if decimal else None,
        scale=int(decimal[2]) if decimal else None,
    )


def _indexed(expressions: str) -> list[str]:
    """The columns of an index from the text that DuckDB shows, such as [id, '"the day"']."""
    return [part.strip("'").strip('"') for part in expressions.removeprefix("[").removesuffix("]").split(", ")]


def _cast(column: TableColumn) -> str:
    """A column of staged texts in the type of the table."""
    if column.kind is _K.BYTES:
        return f"unhex({column.name})"
    if column.kind is _K.JSON and column.type != "JSON":
        return f"CAST(CAST({column.name} AS JSON) AS {column.type})"
    return f"CAST({column.name} AS {column.type})"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _driver() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise DatabaseSinkError(
            "the package duckdb is not installed: pip install 'barnabas[duckdb]', on the driver and on the workers"
        ) from error
    return duckdb
