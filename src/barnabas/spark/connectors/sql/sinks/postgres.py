"""Shell: a connection to PostgreSQL, by psycopg, for the sink.

Stages are unlogged tables, each created in a transaction of its own, before rows are copied. PostgreSQL forgets how to
recover from a rollback of CREATE UNLOGGED TABLE: if the server is killed before the rollback is in its log, it does not
start again ("could not create file ...: File exists"). So nothing may roll back the creation of a stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_for_display, quote_table
from barnabas.spark.connectors.sql.sinks.errors import (
    DatabaseConflictError,
    DatabaseSinkError,
    DatabaseUnreachableError,
    RefusedRowsError,
)
from barnabas.spark.connectors.sql.sinks.naming import STAGE_PREFIX, own_path
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
from barnabas.spark.connectors.sql.sinks.postgres_types import (
    column_of,
    describe_columns,
    describe_keys,
    describe_table,
)
from barnabas.spark.connectors.sql.sinks.statements import create_stage, display_path

_POSTGRES: Final = Dialect.POSTGRES
CONNECT_TIMEOUT_S: Final = 10
DROP_TIMEOUT_S: Final = 5
_OPTIONS: Final = (
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c timezone=UTC"
    " -c datestyle=ISO,MDY -c bytea_output=hex -c standard_conforming_strings=on -c client_min_messages=warning"
)
_SECRETS: Final = ("password", "sslpassword")
_CONFLICTS: Final = ("40001", "40P01", "55P03")
_DUPLICATE: Final = "23505"
_NOT_NULL: Final = "23502"
_PRIVILEGE: Final = "42501"
_GONE: Final = "42P01"


class PostgresSinkSession:
    """A SinkSession."""

    key_collation = ""

    def __init__(self, options: SqlSinkOptions) -> None:
        psycopg = _driver()
        self._options = options
        address = options.address
        settings = dict(address.settings)
        search_path = settings.pop("search_path", None)
        parameters: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "barnabas sink",
            **settings,
            "host": address.host,
            "port": address.port,
            "dbname": address.database,
            "client_encoding": "UTF8",
            "options": _OPTIONS,
            "keepalives_idle": 60,
        }
        parameters |= {"user": address.user} if address.user else {}
        parameters |= {"password": address.password} if address.password else {}
        with self._readable(f"connecting to {address}"):
            self._connection = psycopg.connect(**parameters, autocommit=True)
        if search_path is not None:
            self.rows(Statement("SELECT set_config('search_path', %s, false)", (search_path,)), "setting search_path")
        # A commit that the disk does not have could be lost after Spark has noted it.
        self.rows(
            Statement(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            ),
            "setting synchronous_commit",
        )

    # Statements

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        with self._readable(doing):
            found: list[tuple[Any, ...]] = self._connection.execute(statement.sql, statement.parameters).fetchall()
            return found

    def run(self, statement: Statement, doing: str) -> None:
        with self._readable(doing):
            self._connection.execute(statement.sql, statement.parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._readable("committing"), self._connection.transaction():
            yield

    def describe(self, path: tuple[str, ...]) -> SqlTable | None:
        name = display_path(_POSTGRES, path)
        doing = f"reading the columns of {name}"
        found = self.rows(describe_table(name), doing)
        if not found:
            return None
        kind, problem = found[0]
        if kind not in self._options.table_types:
            types = ", ".join(self._options.table_types)
            problem = f"it is a {kind}, and table.types has {types}: set table.types={kind}, or write to another table"
        columns = tuple(column_of(*row) for row in self.rows(describe_columns(name), doing))
        keys = tuple(tuple(names) for (names,) in self.rows(describe_keys(name), doing))
        return SqlTable(path, columns, keys, problem)

    # Stages

    def create_stage(self, stage: StageTable) -> None:
        doing = "creating a staging table"
        if self._connection.info.transaction_status:  # rows of another stage
            self._execute("COMMIT", doing)
        self._execute(create_stage(_POSTGRES, own_path(self._options, stage.name), stage), doing)
        self._execute("BEGIN", doing)

    def load(self, stage: StageTable, rows: Any) -> None:
        names = [ORDER, DELETED, STEP, *(column.name for column in stage.columns)]
        path = display_path(_POSTGRES, own_path(self._options, stage.name))
        copy = f"COPY {path} ({', '.join(names)}) FROM STDIN (FORMAT csv)"
        data = _csv(rows, stage.columns)
        self._execute("SAVEPOINT barnabas", "staging rows")
        try:
            with self._readable("staging rows"), self._connection.cursor() as cursor, cursor.copy(copy) as copying:
                copying.write(data)
        except RefusedRowsError:
            self._execute("ROLLBACK TO SAVEPOINT barnabas", "staging rows")
            raise
        self._execute("RELEASE SAVEPOINT barnabas", "staging rows")

    def finish_stages(self) -> None:
        self._execute("COMMIT", "committing staged rows")

    def open_stages(self, stages: Sequence[StageTable]) -> None:
        """Stages are tables of the database."""

    def list_stages(self) -> list[str]:
        schema = self._options.staging_schema
        where = "n.nspname = current_schema()" if schema is None else "n.nspname = %s"
        statement = Statement(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE {where} AND c.relkind = 'r' AND starts_with(c.relname::text, '{STAGE_PREFIX}')",
            () if schema is None else (schema,),
        )
        return [name for (name,) in self.rows(statement, "listing the staging tables")]

    def drop_stages(self, names: Sequence[str]) -> None:
        paths = [quote_table(_POSTGRES, own_path(self._options, name)) for name in dict.fromkeys(names)]
        if paths:  # the session of a host that has vanished may hold a lock for hours
            self.run(Statement(f"SET lock_timeout = '{DROP_TIMEOUT_S}s'"), "dropping staging tables")
            self.run(Statement(f"DROP TABLE IF EXISTS {', '.join(paths)}"), "dropping staging tables")

    def close(self) -> None:
        with contextlib.suppress(_driver().Error):
            self._connection.close()

    # Errors

    def _execute(self, sql: str, doing: str) -> None:
        with self._readable(doing):
            self._connection.execute(sql)

    @contextmanager
    def _readable(self, doing: str) -> Iterator[None]:
        psycopg = _driver()
        try:
            yield
        except psycopg.Error as error:
            raise self._error(doing, error) from error

    def _error(self, doing: str, error: Any) -> DatabaseSinkError:
        code = error.sqlstate
        diag = error.diag
        primary = diag.message_primary or str(error).strip().partition("\n")[0]
        detail = f": {diag.message_detail}" if diag.message_detail and code != _NOT_NULL else ""
        text = f"{doing} failed: {primary}{detail}" + (f" ({code})" if code else "")
        if code is None or code.startswith(("08", "57P")) or code in ("53300",):
            return DatabaseUnreachableError(f"{text}: check that the server runs and can be reached")
        if code in _CONFLICTS:
            return DatabaseConflictError(f"{text}: another transaction was in the way")
        if code == _PRIVILEGE:
            return DatabaseSinkError(f"{text}. Run as its owner: {self._grant(diag)}; or use another connection.user")
        if code == _NOT_NULL:
            name = quote_for_display(_POSTGRES, diag.column_name)
            path = [part for part in (diag.schema_name, diag.table_name) if part]
            return RefusedRowsError(
                f"{text}: the rows have no value for a column that needs one. Run: ALTER TABLE"
                f" {display_path(_POSTGRES, path)} ALTER COLUMN {name} DROP NOT NULL"
            )
        if code == _DUPLICATE:
            return RefusedRowsError(f"{text}: set insert.mode=upsert to change such rows, or remove them")
        if code == _GONE and STAGE_PREFIX in primary:
            return DatabaseSinkError(
                f"{text}: another run of this query has dropped it, so that two run at the same time. Stop one of them"
            )
        if code.startswith(("22", "23")):
            return RefusedRowsError(f"{text}: change the value, or the column of the table")
        return DatabaseSinkError(f"{text}: correct the cause that the server names")

    def _grant(self, diag: Any) -> str:
        user = quote_for_display(_POSTGRES, self._options.address.user or "the user")
        primary = diag.message_primary or ""
        if "schema" in primary:
            schema = primary.rpartition(" ")[2]
            return f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}"
        if "must be owner" in primary:
            return f"ALTER TABLE {primary.rpartition(' ')[2]} OWNER TO {user}"
        return f"GRANT SELECT, INSERT, UPDATE, DELETE ON {primary.rpartition(' ')[2]} TO {user}"


def _csv(rows: Any, columns: Sequence[TableColumn]) -> bytes:
    """Rows for COPY. Texts are always quoted, and nulls are empty without quotes. A line begins with a digit, so that
    no line is the end mark of COPY."""
    arrays = list(rows.columns[:3])
    for column, texts in zip(columns, rows.columns[3:], strict=True):
        arrays.append(pc.binary_join_element_wise("\\x", texts, "") if column.kind is ColumnKind.BYTES else texts)
    table = pa.RecordBatch.from_arrays(arrays, rows.schema.names)
    out = pa.BufferOutputStream()
    csv.write_csv(table, out, csv.WriteOptions(include_header=False, batch_size=max(1, table.num_rows)))
    found: bytes = out.getvalue().to_pybytes()
    return found


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise DatabaseSinkError(
            "the driver psycopg is not installed: pip install 'barnabas[postgres]', on the driver and on the workers"
        ) from error
    return psycopg
