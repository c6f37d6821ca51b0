"""Shell: a SQLite file, by Python's own module sqlite3, for the sink.

Tasks only read the columns of the tables, and stage rows in files (`file_stages.py`). The driver copies the files into
temporary tables, outside of the transaction that applies them, since the whole file is locked during it.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
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

_SQLITE: Final = Dialect.SQLITE
BUSY_SECONDS: Final = 30.0
"""How long a statement waits for another writer before the commit is tried again."""
_ARGUMENTS: Final = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_K = ColumnKind
_KINDS: Final = (
    ("BOOL", _K.BOOLEAN),
    ("DATETIME", _K.LOCAL_TIMESTAMP),
    ("TIMESTAMP", _K.LOCAL_TIMESTAMP),
    ("DATE", _K.DATE),
    ("TIME", _K.TIME),
    ("INT", _K.INTEGER),
    ("JSON", _K.JSON),
    ("CHAR", _K.TEXT),
    ("CLOB", _K.TEXT),
    ("TEXT", _K.TEXT),
    ("BLOB", _K.BYTES),
    ("REAL", _K.FLOAT),
    ("FLOA", _K.FLOAT),
    ("DOUB", _K.FLOAT),
    ("DEC", _K.DECIMAL),
    ("NUM", _K.DECIMAL),
)


class SqliteSinkSession:
    """A SinkSession."""

    key_collation = ""

    def __init__(self, options: SqlSinkOptions) -> None:
        self._options = options
        self._path = Path(options.address.database).absolute()
        self._stages = FileStages(options)
        self._opened: sqlite3.Connection | None = None

    # Statements

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        with self._readable(doing) as connection:
            return connection.execute(statement.sql, statement.parameters).fetchall()

    def run(self, statement: Statement, doing: str) -> None:
        with self._readable(doing) as connection:
            connection.execute(statement.sql, statement.parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._readable("beginning a transaction") as connection:
            connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self._readable("committing"):
                connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def describe(self, path: tuple[str, ...]) -> SqlTable | None:
        if len(path) == 2 and path[0] != "main":
            raise DatabaseSinkError(f"{display_path(_SQLITE, path)} names the database {path[0]}: SQLite has main only")
        doing = f"reading the columns of {display_path(_SQLITE, path)}"
        found = self.rows(Statement("SELECT type FROM main.sqlite_master WHERE name = ?", (path[-1],)), doing)
        if not found:
            return None
        quoted = quote_for_display(_SQLITE, path[-1])
        described = self.rows(Statement(f"PRAGMA main.table_xinfo({quoted})"), doing)
        primary = [row[1] for row in sorted(described, key=lambda row: row[5]) if row[5]]
        columns = tuple(_column(row, primary) for row in described if row[6] != 1)
        keys = [tuple(primary)] if primary else []
        for _, index, is_unique, _, is_partial in self.rows(Statement(f"PRAGMA main.index_list({quoted})"), doing):
            if is_unique and not is_partial:
                name = quote_for_display(_SQLITE, index)
                parts = self.rows(Statement(f"PRAGMA main.index_info({name})"), doing)
                if all(column is not None for _, _, column in parts):
                    keys.append(tuple(column for _, _, column in parts))
        kind = str(found[0][0]).upper()
        problem = "" if kind in self._options.table_types else f"it is a {kind}: write to a table"
        return SqlTable(path, columns, tuple(dict.fromkeys(keys)), problem)

    # Stages

    def create_stage(self, stage: StageTable) -> None:
        self._stages.begin(stage.name)

    def load(self, stage: StageTable, rows: Any) -> None:
        self._stages.add(stage.name, rows)

    def finish_stages(self) -> None:
        self._stages.finish()

    def open_stages(self, stages: Sequence[StageTable]) -> None:
        for stage in stages:
            table = self._stages.read(stage.name)
            numbers = (f"{ORDER} INTEGER", f"{DELETED} INTEGER", f"{STEP} INTEGER")
            others = [f"{column.name} {column.type}" for column in stage.columns]
            name = quote_for_display(_SQLITE, stage.name)
            marks = ", ".join("?" * (3 + len(stage.columns)))
            with self._readable("reading staged rows") as connection:
                connection.execute(f"CREATE TEMP TABLE {name} ({', '.join((*numbers, *others))})")
                connection.execute("BEGIN")
                for batch in table.to_batches():
                    cells = [array.to_pylist() for array in batch.columns]
                    for at, column in enumerate(stage.columns, 3):
                        if column.kind is _K.BYTES:
                            cells[at] = [None if text is None else bytes.fromhex(text) for text in cells[at]]
                    connection.executemany(f"INSERT INTO temp.{name} VALUES ({marks})", zip(*cells, strict=True))
                connection.execute("COMMIT")

    def list_stages(self) -> list[str]:
        return self._stages.names()

    def drop_stages(self, names: Sequence[str]) -> None:
        self._stages.drop(names)

    def close(self) -> None:
        self._stages.close()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # Errors

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            if not self._path.parent.is_dir() or not (self._path.exists() or self._options.create):
                raise DatabaseSinkError(
                    f"there is no database file {self._path}: correct connection.url, or set auto.create=true"
                )
            self._opened = sqlite3.connect(str(self._path), timeout=BUSY_SECONDS, isolation_level=None)
            # A commit that the disk does not have could be lost after Spark has noted it.
            self._opened.execute("PRAGMA synchronous = FULL")
        return self._opened

    @contextmanager
    def _readable(self, doing: str) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection()
        except sqlite3.Error as error:
            raise self._error(f"{doing} failed: {error}", error) from error

    def _error(self, text: str, error: sqlite3.Error) -> DatabaseSinkError:
        if "locked" in str(error) or "busy" in str(error):
            return DatabaseConflictError(
                f"{text}: another process writes to {self._path}, and SQLite has one writer at a time. End its"
                " transaction"
            )
        if "UNIQUE" in str(error):
            return RefusedRowsError(f"{text}: set insert.mode=upsert to change such rows, or remove them")
        if isinstance(error, sqlite3.IntegrityError):
            return RefusedRowsError(f"{text}: change the value, or the constraint of the table")
        if "unable to open" in str(error) or "disk I/O" in str(error):
            return DatabaseUnreachableError(f"{text}: check {self._path}, and that the user may write to its directory")
        if "readonly" in str(error):
            return DatabaseSinkError(f"{text}: let the user write to {self._path} and to its directory")
        return DatabaseSinkError(f"{text}: correct the cause that the database names")


def _column(row: tuple[Any, ...], primary: list[str]) -> TableColumn:
    """A column from a row of `PRAGMA table_xinfo`: cid, name, type, notnull, dflt_value, pk, hidden."""
    _, name, declared, not_null, default, key, hidden = row
    text = (declared or "").upper()
    kind = next((kind for word, kind in _KINDS if word in text), _K.OTHER)
    is_rowid = bool(key) and len(primary) == 1 and text == "INTEGER"
    arguments = _ARGUMENTS.search(text) if kind is _K.DECIMAL else None
    return TableColumn(
        name,
        declared or "",
        kind,
        not (not_null or key),
        default is not None or bool(hidden) or is_rowid,
        bits=64 if kind is _K.INTEGER else None,
        precision=int(arguments[1]) if arguments else None,
        scale=int(arguments[2] or 0) if arguments else None,
    )
