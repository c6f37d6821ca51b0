"""Table: the SQL of the sinks for each database: the ledger, the tables, and the changes of a micro-batch.

All statements have the placeholders of `dialects.py`, and are executed with their parameters, even if there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from barnabas.spark.connectors.sql.dialects import (
    Dialect,
    Statement,
    placeholder,
    quote_for_display,
    quote_identifier,
    quote_table,
)
from barnabas.spark.connectors.sql.sinks.ports import (
    DELETED,
    ORDER,
    STEP,
    ColumnKind,
    StageTable,
    TableColumn,
    stage_column,
)
from barnabas.spark.delivery.identity import NOTHING_PUBLISHED

LEDGER: Final = "barnabas_ledger"
IDENTITY: Final = "identity"
"""The ledger's column with what identifies the newest micro-batch, which ledgers of earlier releases do not have."""
JOBS: Final = "job-"
"""The beginning of the ids that `df.write` has instead of the id of a query."""
_NOW: Final = {
    Dialect.POSTGRES: "now()",
    Dialect.MYSQL: "utc_timestamp(6)",
    Dialect.SQLITE: "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
    Dialect.DUCKDB: "now()",
}
_WEEK_AGO: Final = {
    Dialect.POSTGRES: "now() - interval '7 days'",
    Dialect.MYSQL: "utc_timestamp(6) - INTERVAL 7 DAY",
    Dialect.SQLITE: "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-7 days')",
    Dialect.DUCKDB: "now() - interval '7 days'",
}
_LEDGER_TIME: Final = {
    Dialect.POSTGRES: "timestamptz",
    Dialect.MYSQL: "datetime(6)",
    Dialect.SQLITE: "TEXT",
    Dialect.DUCKDB: "TIMESTAMPTZ",
}
_LEDGER_TEXT: Final = {
    Dialect.POSTGRES: "text",
    Dialect.MYSQL: "mediumtext",
    Dialect.SQLITE: "TEXT",
    Dialect.DUCKDB: "VARCHAR",
}
_LOCKS_ROWS: Final = (Dialect.POSTGRES, Dialect.MYSQL)


# -- the ledger --------------------------------------------------------------------------------------------------------


def create_ledger(dialect: Dialect, path: Sequence[str]) -> Statement:
    """A row for each query: its id, the number of its newest micro-batch, when that was published (UTC), and what
    identifies it (`LedgerEntry`)."""
    engine = " ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin" if dialect is Dialect.MYSQL else ""
    return Statement(
        f"CREATE TABLE IF NOT EXISTS {quote_table(dialect, path)} (query_id varchar(200) NOT NULL PRIMARY KEY,"
        f" batch_id bigint NOT NULL, published_at {_LEDGER_TIME[dialect]} NOT NULL,"
        f" {IDENTITY} {_LEDGER_TEXT[dialect]}){engine}"
    )


def upgrade_ledger(dialect: Dialect, path: Sequence[str]) -> Statement:
    """Add what the ledger of an earlier release does not have."""
    return as_statement(
        dialect, add_column(dialect, path, TableColumn(IDENTITY, _LEDGER_TEXT[dialect], ColumnKind.TEXT))
    )


def begin_ledger(dialect: Dialect, path: Sequence[str], query_id: str) -> Statement:
    """Make sure that the query has a row, which `lock_ledger` can lock."""
    ignore, conflict = ("IGNORE ", "") if dialect is Dialect.MYSQL else ("", " ON CONFLICT DO NOTHING")
    return Statement(
        f"INSERT {ignore}INTO {quote_table(dialect, path)} (query_id, batch_id, published_at)"
        f" VALUES ({placeholder(dialect)}, {NOTHING_PUBLISHED}, {_NOW[dialect]}){conflict}",
        (query_id,),
    )


def read_ledger(dialect: Dialect, path: Sequence[str], query_id: str, *, lock: bool = False) -> Statement:
    """The number and the identity of the query's newest micro-batch; no row if it has published nothing."""
    locking = " FOR UPDATE" if lock and dialect in _LOCKS_ROWS else ""
    where = f"WHERE query_id = {placeholder(dialect)}{locking}"
    return Statement(f"SELECT batch_id, {IDENTITY} FROM {quote_table(dialect, path)} {where}", (query_id,))


def move_ledger(dialect: Dialect, path: Sequence[str], query_id: str, batch_id: int, identity: str) -> Statement:
    mark = placeholder(dialect)
    return Statement(
        f"UPDATE {quote_table(dialect, path)} SET batch_id = {mark}, {IDENTITY} = {mark},"
        f" published_at = {_NOW[dialect]} WHERE query_id = {mark}",
        (batch_id, identity, query_id),
    )


def forget_job(dialect: Dialect, path: Sequence[str], job_id: str) -> Statement:
    """A `df.write` whose commit is confirmed is not repeated."""
    return Statement(f"DELETE FROM {quote_table(dialect, path)} WHERE query_id = {placeholder(dialect)}", (job_id,))


def old_jobs(dialect: Dialect, path: Sequence[str]) -> Statement:
    """The ids of jobs whose drivers died before `forget_job`."""
    return Statement(
        f"SELECT query_id FROM {quote_table(dialect, path)} WHERE query_id LIKE {placeholder(dialect)}"
        f" AND published_at < {_WEEK_AGO[dialect]}",
        (f"{JOBS}%",),
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def create_table(dialect: Dialect, path: Sequence[str], columns: Sequence[TableColumn], key: Sequence[str]) -> str:
    """As a person would type it; it has no placeholders."""
    parts = [_definition(dialect, column) for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(quote_for_display(dialect, name) for name in key)})")
    engine = " ENGINE=InnoDB" if dialect is Dialect.MYSQL else ""
    return f"CREATE TABLE IF NOT EXISTS {display_path(dialect, path)} ({', '.join(parts)}){engine}"


def add_column(dialect: Dialect, path: Sequence[str], column: TableColumn) -> str:
    """As a person would type it; it has no placeholders."""
    return f"ALTER TABLE {display_path(dialect, path)} ADD COLUMN {_definition(dialect, column)}"


def create_stage(dialect: Dialect, path: Sequence[str], stage: StageTable) -> str:
    """Without placeholders. A stage needs no write-ahead log: its rows are counted before they are applied."""
    unlogged = "UNLOGGED " if dialect is Dialect.POSTGRES else ""
    engine = " ENGINE=InnoDB" if dialect is Dialect.MYSQL else ""
    numbers = (f"{ORDER} bigint NOT NULL", f"{DELETED} smallint NOT NULL", f"{STEP} integer NOT NULL")
    others = [f"{column.name} {column.type} NULL" for column in stage.columns]
    columns = ", ".join((*numbers, *others))
    return f"CREATE {unlogged}TABLE {display_path(dialect, path)} ({columns}){engine}"


def display_path(dialect: Dialect, path: Sequence[str]) -> str:
    """The name of a table, for statements without parameters and for messages."""
    return ".".join(quote_for_display(dialect, part) for part in path)


def as_statement(dialect: Dialect, text: str) -> Statement:
    """A text without placeholders as a statement."""
    return Statement(text.replace("%", "%%") if placeholder(dialect) == "%s" else text)


def _definition(dialect: Dialect, column: TableColumn) -> str:
    return f"{quote_for_display(dialect, column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}"


# -- the changes of a micro-batch --------------------------------------------------------------------------------------

_TASK: Final = "r_task"
_RANK: Final = "r_rank"
_GONE: Final = "r_gone"


class StagePart(Struct, frozen=True):
    """Staged rows of one task: a stage, where it is, and the step of the rows, if the stage has several."""

    stage: StageTable
    path: tuple[str, ...]
    task: int
    step: int | None = None


class KeyedChange(Struct, frozen=True):
    """Rows with the same columns that change a table. `names` are the columns, those of `key` first; `types` are the
    types that values are cast to, where stages have others (PostgreSQL only).
    """

    dialect: Dialect
    path: tuple[str, ...]
    key: tuple[str, ...]
    names: tuple[str, ...]
    parts: tuple[StagePart, ...]
    types: tuple[str, ...] = ()

    # Rows

    def delete(self) -> Statement:
        """Delete the keys that a row deletes."""
        keys = self._values(self.key)
        gone = f"SELECT {', '.join(keys)} FROM ({self._source()}) AS s WHERE {DELETED} = 1"
        if self.dialect is Dialect.MYSQL:
            joined = self._matches("x", "s")
            return Statement(f"DELETE x FROM {self._table()} AS x JOIN (SELECT DISTINCT {gone[7:]}) AS s ON {joined}")
        names = self._names(self.key)
        left = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return Statement(f"DELETE FROM {self._table()} WHERE {left} IN ({gone})")

    def insert(self, *, deletes: bool) -> Statement:
        """Insert all rows, except those that a later row deletes."""
        values = ", ".join(self._values(self.names))
        if not deletes:
            rows = f"SELECT {values} FROM ({self._source()}) AS s ORDER BY {_TASK}, {ORDER}"
        else:
            window = f"PARTITION BY {', '.join(self._values(self.key))} ORDER BY {_TASK} DESC, {ORDER} DESC"
            marked = f"SELECT a.*, MAX({DELETED}) OVER ({window}) AS {_GONE} FROM ({self._source()}) AS a"
            rows = f"SELECT {values} FROM ({marked}) AS s WHERE {_GONE} = 0 ORDER BY {_TASK}, {ORDER}"
        return Statement(f"INSERT INTO {self._table()} ({', '.join(self._names(self.names))}) {rows}")

    def upsert(self, *, deletes: bool) -> Statement:
        """Insert the last row of each key, or change the row that has the key. `deletes` says if rows delete keys."""
        changed = [name for name in self.names if name not in self.key]
        names = self._names(changed)
        values = ", ".join(f"s.{value}" for value in self._values(self.names))
        order = ", ".join(f"s.{value}" for value in self._values(self.key))
        insert = f"INSERT INTO {self._table()} ({', '.join(self._names(self.names))})"
        # SQLite takes ON CONFLICT for a part of the FROM if there is no WHERE.
        where = "" if self.dialect is Dialect.POSTGRES else f" WHERE s.{_RANK} = 1"
        rows = f"SELECT {values} FROM ({self._last()}) AS s{where} ORDER BY {order}"
        if self.dialect is Dialect.MYSQL:
            if not deletes:  # the rows of a key change it one after the other, so that the last one stays
                rows = f"SELECT {values} FROM ({self._source()}) AS s ORDER BY {order}, s.{_TASK}, s.{ORDER}"
            pairs = list(zip(names, self._values(changed), strict=True))
            if not pairs:
                pairs = [(self._names(self.key)[0], self._values(self.key)[0])]
            sets = ", ".join(f"{name} = s.{value}" for name, value in pairs)
            return Statement(f"{insert} {rows} ON DUPLICATE KEY UPDATE {sets}")
        key = ", ".join(self._names(self.key))
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in names)
        action = f"DO UPDATE SET {sets}" if names else "DO NOTHING"
        return Statement(f"{insert} {rows} ON CONFLICT ({key}) {action}")

    def update(self) -> Statement | None:
        """Change the rows whose keys exist, by the last row of each key. None if the rows have a key only."""
        changed = [name for name in self.names if name not in self.key]
        if not changed:
            return None
        pairs = list(zip(self._names(changed), self._values(changed), strict=True))
        if self.dialect is Dialect.MYSQL:
            sets = ", ".join(f"x.{name} = s.{value}" for name, value in pairs)
            matches = self._matches("x", "s")
            return Statement(f"UPDATE {self._table()} AS x JOIN ({self._last()}) AS s ON {matches} SET {sets}")
        sets = ", ".join(f"{name} = s.{value}" for name, value in pairs)
        matches = self._matches(quote_identifier(self.dialect, self.path[-1]), "s")
        return Statement(f"UPDATE {self._table()} SET {sets} FROM ({self._last()}) AS s WHERE {matches}")

    def insert_missing(self) -> Statement:
        """Insert the last row of each key that the table does not have."""
        names = ", ".join(self._names(self.names))
        values = ", ".join(f"s.{value}" for value in self._values(self.names))
        order = ", ".join(f"s.{value}" for value in self._values(self.key))
        exists = f"SELECT 1 FROM {self._table()} AS x WHERE {self._matches('x', 's')}"
        return Statement(
            f"INSERT INTO {self._table()} ({names}) SELECT {values} FROM ({self._last()}) AS s"
            f" WHERE NOT EXISTS ({exists}) ORDER BY {order}"
        )

    def missing(self) -> Statement:
        """The key of a row that the table does not have; no row if it has them all."""
        keys = ", ".join(f"s.{value}" for value in self._values(self.key))
        exists = f"SELECT 1 FROM {self._table()} AS x WHERE {self._matches('x', 's')}"
        return Statement(f"SELECT {keys} FROM ({self._last()}) AS s WHERE NOT EXISTS ({exists}) LIMIT 1")

    def kept_nulls(self, columns: Sequence[str]) -> Statement:
        """(how many rows of the table stay NULL in one of the columns, which the rows do not have)"""
        nulls = " OR ".join(f"x.{name} IS NULL" for name in self._names(columns))
        rows = f"SELECT count(*) FROM {self._table()} AS x JOIN ({self._last()}) AS s"
        return Statement(f"{rows} ON {self._matches('x', 's')} WHERE {nulls}")

    # Parts of statements

    def _source(self) -> str:
        """All rows of the stages, with the columns v0, v1, ... in the order of the names."""
        return " UNION ALL ".join(self._select(part) for part in self.parts)

    def _select(self, part: StagePart) -> str:
        values = []
        for number, name in enumerate(self.names):
            index = part.stage.names.index(name)
            value = stage_column(index)
            if self.types and part.stage.columns[index].type != self.types[number]:
                value = f"CAST({value} AS {self.types[number].replace('%', '%%')})"
            values.append(f"{value} AS v{number}")
        where = "" if part.step is None else f" WHERE {STEP} = {part.step}"
        table = quote_table(self.dialect, part.path)
        return f"SELECT {part.task} AS {_TASK}, {ORDER}, {DELETED}, {', '.join(values)} FROM {table}{where}"

    def _last(self) -> str:
        """The last row of each key, unless it deletes the key."""
        keys = ", ".join(self._values(self.key))
        if self.dialect is Dialect.POSTGRES:  # half the work of a window
            order = f"{keys}, {_TASK} DESC, {ORDER} DESC"
            last = f"SELECT DISTINCT ON ({keys}) a.* FROM ({self._source()}) AS a ORDER BY {order}"
            return f"SELECT b.* FROM ({last}) AS b WHERE b.{DELETED} = 0"
        rank = f"ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {_TASK} DESC, {ORDER} DESC) AS {_RANK}"
        ranked = f"SELECT a.*, {rank} FROM ({self._source()}) AS a"
        return f"SELECT b.* FROM ({ranked}) AS b WHERE b.{_RANK} = 1 AND b.{DELETED} = 0"

    def _values(self, names: Sequence[str]) -> list[str]:
        return [f"v{self.names.index(name)}" for name in names]

    def _names(self, names: Sequence[str]) -> list[str]:
        return [quote_identifier(self.dialect, name) for name in names]

    def _matches(self, table: str, source: str) -> str:
        pairs = zip(self._names(self.key), self._values(self.key), strict=True)
        return " AND ".join(f"{table}.{name} = {source}.{value}" for name, value in pairs)

    def _table(self) -> str:
        return quote_table(self.dialect, self.path)


def count_rows(dialect: Dialect, paths: Sequence[Sequence[str]]) -> Statement:
    """(number of the path, rows) for each stage."""
    return Statement(
        " UNION ALL ".join(
            f"SELECT {number} AS stage, count(*) AS found FROM {quote_table(dialect, path)}"
            for number, path in enumerate(paths)
        )
    )
