"""Shell: a connection to MySQL or MariaDB, by PyMySQL, for the sink.

Stages are InnoDB tables, and rows are INSERT statements of many rows. Their literals are built by Arrow, so that no
value passes through a Python object. CREATE TABLE commits in MySQL: a task that dies leaves a stage, which the next
micro-batch of the query drops.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.sql.connection_urls import DatabaseAddress
from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_table
from barnabas.spark.connectors.sql.sinks.errors import (
    DatabaseConflictError,
    DatabaseSinkError,
    DatabaseUnreachableError,
    RefusedRowsError,
)
from barnabas.spark.connectors.sql.sinks.mysql_types import (
    column_of,
    describe_columns,
    describe_keys,
    describe_table,
    list_tables,
    table_problem,
    unique_keys,
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
from barnabas.spark.connectors.sql.sinks.statements import create_stage, display_path

_MYSQL: Final = Dialect.MYSQL
CONNECT_TIMEOUT_MS: Final = 10_000
STATEMENT_BYTES: Final = 4 * 1024 * 1024
"""About the longest INSERT statement of a stage, if the server takes it (max_allowed_packet)."""
_SETTINGS: Final = (
    # Zero in an AUTO_INCREMENT column stays zero, and a value that does not fit is an error.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION',"
    " SESSION time_zone = '+00:00', SESSION wait_timeout = 604800"
)
_NOPAD: Final = {"mariadb": "utf8mb4_nopad_bin", "mysql": "utf8mb4_0900_bin"}
_UNREACHABLE: Final = (0, 1040, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2005, 2006, 2013, 2055)
_CONFLICTS: Final = (1020, 1205, 1213)
_PRIVILEGES: Final = (1044, 1142, 1143, 1227, 1370)
_LOGIN: Final = (1045, 1698)
_NO_VALUE: Final = (1048, 1364)
_DUPLICATE: Final = (1062, 1586)
_NO_TABLE: Final = 1146
_TOO_LARGE: Final = 1153
_VALUES: Final = (
    1118, 1138, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 1416, 1451, 1452, 1525, 1690, 3140, 3156, 3819, 4025,
)  # fmt: skip


class MysqlSinkSession:
    """A SinkSession."""

    def __init__(self, options: SqlSinkOptions) -> None:
        pymysql = _driver()
        self._options = options
        address = options.address
        timeout_ms = int(address.settings.get("connect_timeout_ms", CONNECT_TIMEOUT_MS))
        with self._readable(f"connecting to {address}"):
            self._connection = pymysql.connect(
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password or "",
                database=address.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=max(1, timeout_ms // 1000),
                **_tls(address),
            )
        self._execute(_SETTINGS, "setting up the session")
        ((version, packet),) = self.rows(Statement("SELECT VERSION(), @@max_allowed_packet"), "reading the version")
        self.key_collation = _collation(str(version))
        self._bytes_max = min(STATEMENT_BYTES, int(packet) - 1024)
        self._packet = int(packet)

    # Statements

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        with self._readable(doing), self._connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.parameters)
            return [tuple(row) for row in cursor.fetchall()]

    def run(self, statement: Statement, doing: str) -> None:
        with self._readable(doing), self._connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._readable("committing"):
            self._connection.begin()
            try:
                yield
                self._connection.commit()
            except BaseException:  # whatever happens, the transaction must not go on
                with contextlib.suppress(_driver().err.MySQLError, OSError):
                    self._connection.rollback()
                raise

    def describe(self, path: tuple[str, ...]) -> SqlTable | None:
        shown = display_path(_MYSQL, path)
        doing = f"reading the columns of {shown}"
        found = self.rows(describe_table(path), doing)
        if not found:
            return None
        kind, engine, transactions = found[0]
        problem = table_problem(str(kind), engine, transactions, shown)
        kind = "VIEW" if kind == "VIEW" else "TABLE"
        if kind not in self._options.table_types:
            types = ", ".join(self._options.table_types)
            problem = f"it is a {kind}, and table.types has {types}: set table.types={kind}, or write to another table"
        columns = tuple(column_of(row) for row in self.rows(describe_columns(path), doing))
        return SqlTable(path, columns, unique_keys(self.rows(describe_keys(path), doing)), problem)

    # Stages

    def create_stage(self, stage: StageTable) -> None:
        doing = "creating a staging table"
        with self._readable(doing):
            self._connection.autocommit(False)
        self._execute(create_stage(_MYSQL, own_path(self._options, stage.name), stage), doing)

    def load(self, stage: StageTable, rows: Any) -> None:
        names = ", ".join((ORDER, DELETED, STEP, *(column.name for column in stage.columns)))
        insert = f"INSERT INTO {display_path(_MYSQL, own_path(self._options, stage.name))} ({names}) VALUES "
        self._execute("SAVEPOINT barnabas", "staging rows")
        try:
            for values in _literals(rows, stage.columns, self._bytes_max):
                size = len(values) + len(insert)
                if size > self._packet:
                    raise RefusedRowsError(
                        f"a row of {size} bytes is larger than max_allowed_packet ({self._packet}). Run: SET GLOBAL"
                        f" max_allowed_packet = {1 << size.bit_length()}"
                    )
                with self._readable("staging rows"):
                    self._connection.query(insert + values)
        except RefusedRowsError:
            self._execute("ROLLBACK TO SAVEPOINT barnabas", "staging rows")
            raise

    def finish_stages(self) -> None:
        with self._readable("committing staged rows"):
            self._connection.commit()

    def open_stages(self, stages: Sequence[StageTable]) -> None:
        """Stages are tables of the database."""

    def list_stages(self) -> list[str]:
        found = self.rows(list_tables(self._options.staging_schema, STAGE_PREFIX), "listing the staging tables")
        return [name.decode() if isinstance(name, bytes) else name for (name,) in found]

    def drop_stages(self, names: Sequence[str]) -> None:
        paths = [quote_table(_MYSQL, own_path(self._options, name)) for name in dict.fromkeys(names)]
        if paths:
            self.run(Statement(f"DROP TABLE IF EXISTS {', '.join(paths)}"), "dropping staging tables")

    def close(self) -> None:
        if self._connection.open:
            with contextlib.suppress(_driver().err.MySQLError, OSError):
                self._connection.close()

    # Errors

    def _execute(self, sql: str, doing: str) -> None:
        with self._readable(doing):
            self._connection.query(sql)

    @contextmanager
    def _readable(self, doing: str) -> Iterator[None]:
        pymysql = _driver()
        try:
            yield
        except (pymysql.err.MySQLError, OSError, EOFError) as error:
            raise self._error(doing, error) from error

    def _error(self, doing: str, error: Any) -> DatabaseSinkError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = f"{doing} failed: {error.args[1] if len(error.args) > 1 else error} ({code})"
        if code in _UNREACHABLE or isinstance(error, OSError | EOFError):
            return DatabaseUnreachableError(f"{text}: check that the server runs and can be reached")
        if code in _CONFLICTS:
            return DatabaseConflictError(f"{text}: another transaction was in the way")
        if code in _LOGIN:
            return DatabaseSinkError(f"{text}: check connection.user and connection.password")
        if code in _PRIVILEGES:
            return DatabaseSinkError(
                f"{text}. Run as an administrator: {self._grant()}; or use another connection.user"
            )
        if code in _NO_VALUE:
            name = next(iter(re.findall(r"'([^']*)'", text)), "the column")
            return RefusedRowsError(
                f"{text}: the rows have no value for the column {name}, which needs one. Give it a default, or allow"
                f" NULL: ALTER TABLE ... MODIFY {name} ... NULL"
            )
        if code in _DUPLICATE:
            return RefusedRowsError(f"{text}: set insert.mode=upsert to change such rows, or remove them")
        if code == _NO_TABLE and STAGE_PREFIX in text:
            return DatabaseSinkError(
                f"{text}: another run of this query has dropped it, so that two run at the same time. Stop one of them"
            )
        if code == _TOO_LARGE:
            return RefusedRowsError(f"{text}: raise max_allowed_packet of the server")
        if code in _VALUES:
            return RefusedRowsError(f"{text}: change the value, or the column of the table")
        return DatabaseSinkError(f"{text}: correct the cause that the server names")

    def _grant(self) -> str:
        database = self._options.staging_schema or self._options.address.database
        user = (self._options.address.user or "").replace("'", "''")
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER"
        return f"GRANT {rights} ON {display_path(_MYSQL, (database,))}.* TO '{user}'@'%'"


def _literals(rows: Any, columns: Sequence[TableColumn], bytes_max: int) -> Iterator[str]:
    """The rows as lists of values for INSERT, each of about `bytes_max` bytes and at least one row."""
    cells = [column.cast(pa.string()) for column in rows.columns[:3]]
    cells += [_literal(texts, column) for column, texts in zip(columns, rows.columns[3:], strict=True)]
    joined = pc.binary_join_element_wise(*cells, ",")
    lines = pc.binary_join_element_wise("(", joined, ")", "")
    sizes = np.cumsum(pc.binary_length(lines).to_numpy(zero_copy_only=False).astype(np.int64) + 1)
    begin = 0
    while begin < len(lines):
        before = int(sizes[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(sizes, before + bytes_max, side="right")))
        yield ",".join(lines.slice(begin, end - begin).to_pylist())
        begin = end


def _literal(texts: Any, column: TableColumn) -> Any:
    """Texts as literals of SQL; the session's sql_mode has backslashes as escapes."""
    if column.kind is ColumnKind.BYTES:
        return pc.fill_null(pc.binary_join_element_wise("x'", texts, "'", ""), "NULL")
    for char, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0")):
        texts = pc.replace_substring(texts, char, escaped)
    before = "0+'" if column.type.startswith("bit") else "'"
    return pc.fill_null(pc.binary_join_element_wise(before, texts, "'", ""), "NULL")


def _collation(version: str) -> str:
    """A binary collation of utf8mb4 in which spaces at the end of a text count."""
    if "mariadb" in version.lower():
        return _NOPAD["mariadb"]
    numbers = [int(number) for number in re.findall(r"\d+", version)[:3]]
    return _NOPAD["mysql"] if numbers >= [8, 0, 17] else "utf8mb4_bin"


def _tls(address: DatabaseAddress) -> dict[str, Any]:
    mode, authority = address.settings.get("ssl_mode", "preferred"), address.settings.get("ssl_ca")
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "required":
        return {"ssl": {"check_hostname": False, "verify_mode": False}}
    if authority is not None:
        verify = mode.startswith("verify")
        return {"ssl": {"ca": authority, "check_hostname": mode == "verify_identity", "verify_mode": verify}}
    return {}


def _driver() -> Any:
    try:
        import pymysql
    except ImportError as error:
        raise DatabaseSinkError(
            "the driver PyMySQL is not installed: pip install 'barnabas[mysql]', on the driver and on the workers"
        ) from error
    return pymysql
