"""Shell: MySQL and MariaDB as databases that can be polled. Types are those of the change capture of `mysql/`.

The columns are those that the server describes with the result of a query, so tables, views and queries are alike.
Source: MySQL's "Client/Server Protocol", column definitions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from msgspec import structs

from barnabas import __version__
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.events.changes import TableSchema
from barnabas.spark.connectors.mysql.binlog.charsets import BINARY_COLLATION
from barnabas.spark.connectors.mysql.binlog.codes import BinlogColumnType
from barnabas.spark.connectors.mysql.binlog.events import BinlogColumn, BinlogTable
from barnabas.spark.connectors.mysql.columns import SYSTEM_DATABASES, column_schema
from barnabas.spark.connectors.mysql.errors import MysqlSourceError, ServerConnectionError
from barnabas.spark.connectors.mysql.options import MysqlOptions
from barnabas.spark.connectors.mysql.session import MysqlSession, readable
from barnabas.spark.connectors.mysql.text_rows import decode_columns
from barnabas.spark.connectors.polling.counted_history import PARTITIONS_MAX, CountedHistory
from barnabas.spark.connectors.polling.options import PollingOptions, TableKind, parse_polling_options
from barnabas.spark.connectors.polling.output import QUERY, make_polled_output, polled_columns
from barnabas.spark.connectors.polling.ports import PolledColumns
from barnabas.spark.connectors.polling.source import PollingSource
from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_identifier
from barnabas.spark.connectors.sql.polling import PolledTable, TimeForm
from barnabas.spark.errors import OptionError
from barnabas.spark.identities import Marks

log = logging.getLogger("barnabas.spark")

_T = BinlogColumnType
_UTF8MB4: Final = 45
_NOT_NULL: Final = 1
_UNSIGNED: Final = 32
_ENUM: Final = 256
_SET: Final = 2048
_FRACTION_MAX: Final = 6

_TABLES: Final = (
    "SELECT table_schema, table_name, table_type FROM information_schema.tables"
    f" WHERE table_schema NOT IN ({', '.join(repr(name) for name in sorted(SYSTEM_DATABASES))})"
)
_BASE: Final = ("BASE TABLE", "SYSTEM VERSIONED")
_AS_THEY_ARE: Final = frozenset(
    (_T.TINY, _T.SHORT, _T.INT24, _T.LONG, _T.LONGLONG, _T.YEAR, _T.DATE, _T.DOUBLE, _T.FLOAT, _T.JSON, _T.GEOMETRY)
)
_WITH_FRACTION: Final = {_T.TIMESTAMP: _T.TIMESTAMP2, _T.DATETIME: _T.DATETIME2, _T.TIME: _T.TIME2}


def parse_mysql_polling(texts: Mapping[str, str]) -> CaptureOptions:
    """Raises OptionError."""
    return _parse(texts).capture


def _parse(texts: Mapping[str, str]) -> PollingOptions:
    options = parse_polling_options(texts, Dialect.MYSQL)
    if not options.address.user:
        raise OptionError("connection.user must be given: a user that may read the tables")
    return options


def open_mysql_polling(options: CaptureOptions) -> PollingSource:
    """The source of these options, which connects when a method is called."""
    parsed = _parse(options.given.texts)
    return PollingSource(parsed, MysqlDatabase(parsed))


def _connector(name: str) -> Connector:
    return Connector(
        f"barnabas.{name}",
        name,
        __version__,
        (),
        {},
        open_mysql_polling,
        parse=parse_mysql_polling,
        columns=polled_columns,
        output=make_polled_output,
    )


_CREATED: Final = (
    "SELECT DATE_FORMAT(create_time, '%%Y-%%m-%%d %%H:%%i:%%s') FROM information_schema.tables"
    " WHERE table_schema = %s AND table_name = %s AND table_type = 'BASE TABLE'"
)
_SERVER: Final = "SHOW GLOBAL VARIABLES LIKE 'server_uuid'"
_FLUSHED: Final = (
    "SHOW GLOBAL STATUS WHERE variable_name IN ('Innodb_lsn_flushed', 'Innodb_redo_log_flushed_to_disk_lsn')"
)
"""Of MariaDB, and of MySQL since 8.0.30."""

_PATTERN: Final = str.maketrans({character: f"\\{character}" for character in "\\%_"})
"""Makes a name part of a pattern of LIKE."""

MYSQL_POLLING: Final = _connector("mysql")
MARIADB_POLLING: Final = _connector("mariadb")


class MysqlDatabase(CountedHistory):
    """A PolledDatabase."""

    lost: tuple[type[Exception], ...] = (ServerConnectionError,)

    def __init__(self, options: PollingOptions) -> None:
        self._options = _session_options(options)
        self._database = options.address.database
        self._has_pattern = options.given.get("catalog.pattern") is not None
        self._table: BinlogTable | None = None
        self._opened: MysqlSession | None = None
        self._numbers: tuple[str, ...] = ("innodb_sys_tables", "innodb_tables")
        """The views that may have the tables' numbers, of MariaDB and MySQL."""

    def list_tables(self, kinds: frozenset[TableKind]) -> list[tuple[str, ...]]:
        """Those of the database of the URL; with catalog.pattern, of all databases."""
        rows = self.rows(Statement(_TABLES), "listing the tables")
        return [
            (schema, table)
            for schema, table, kind in rows
            if (TableKind.TABLE if kind in _BASE else TableKind.VIEW) in kinds
            and (self._has_pattern or schema == self._database)
        ]

    def describe(self, table: PolledTable) -> PolledColumns:
        database, name = (self._database, QUERY) if table.query is not None else table.path
        doing = f"reading the columns of {name}"
        session = self._session()
        sql = self._merged(session, Statement(f"SELECT * FROM {table.source} LIMIT 0"))
        with readable(doing), session.connection.cursor() as cursor:
            cursor.execute(sql)
            fields = cursor._result.fields
        columns = tuple(_column(field) for field in fields)
        described = BinlogTable(database, name, columns, (), described=True)
        self._table = described
        found = tuple(structs.replace(column_schema(described, column), nullable=column.nullable) for column in columns)
        selected = []
        for column in columns:
            quoted = quote_identifier(Dialect.MYSQL, column.name)
            selected.append(f"({quoted} * 1e0)" if column.type in (_T.FLOAT, _T.DOUBLE) else quoted)
        forms = {one.name: TimeForm.NATIVE for one in found if pa.types.is_timestamp(one.type)}
        zoned = frozenset(one.name for one in found if pa.types.is_timestamp(one.type) and one.type.tz)
        return PolledColumns(TableSchema(database, "", name, found, ()), ", ".join(selected), forms, zoned)

    def marks(self, table: PolledTable) -> Marks:
        """The server, when the table was created, and the numbers of the table and its partitions in InnoDB, for a user
        with the privilege PROCESS: TRUNCATE gives other ones, and so do commands that rewrite the table. MariaDB's
        servers have no id."""
        servers = self.rows(Statement(_SERVER), "reading the id of the server")
        marks = {str(name).removesuffix("_uuid"): str(uuid) for name, uuid in servers}
        if table.query is not None:
            return marks
        found = self.rows(Statement(_CREATED, table.path), "reading when the table was created")
        if found and found[0][0]:
            marks["created"] = str(found[0][0])
        return {**marks, **self._numbers_of(table)}

    def count(self) -> int | None:
        """The end of InnoDB's log on the disk."""
        found = self.rows(Statement(_FLUSHED), "reading the position of InnoDB's log")
        return int(found[0][1]) if found else None

    def _numbers_of(self, table: PolledTable) -> Marks:
        """The number of a table, or of each of its partitions, in InnoDB; none if the user may not see them."""
        name = "/".join(table.path)
        partitions = name.translate(_PATTERN) + "#p#%"
        for view in self._numbers:
            statement = Statement(
                f"SELECT name, table_id FROM information_schema.{view} WHERE name = %s OR name LIKE %s"
                f" LIMIT {PARTITIONS_MAX}",
                (name, partitions),
            )
            try:
                found = self.rows(statement, "reading the number of the table")
            except ServerConnectionError:
                raise
            except MysqlSourceError:  # another kind of server, or no PROCESS
                continue
            self._numbers = (view,)
            return {f"number{str(one)[len(name) :].lower()}": str(number) for one, number in found}
        self._numbers = ()
        return {}

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        session = self._session()
        return session.rows(self._merged(session, statement), doing)

    def batches(self, statement: Statement, columns: PolledColumns, doing: str) -> Iterator[Any]:
        assert self._table is not None
        session, table = self._session(), self._table
        names = [column.name for column in columns.schema.columns]
        zeros = 0
        for found in session.cells(self._merged(session, statement), len(names), doing):
            arrays, zero_dates = decode_columns(table, found.cells)
            zeros += zero_dates
            yield pa.RecordBatch.from_arrays(arrays, names=names)
        if zeros:
            log.warning("%d dates of %s are null, since no calendar has them (such as 0000-00-00)", zeros, table.name)

    def end_poll(self) -> None:
        """Does nothing: an idle connection keeps nobody out."""

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _session(self) -> MysqlSession:
        if self._opened is None:
            session = MysqlSession(self._options)
            session.run(f"USE {quote_identifier(Dialect.MYSQL, self._database).replace('%%', '%')}")
            self._opened = session
        return self._opened

    def _merged(self, session: MysqlSession, statement: Statement) -> str:
        """The statement with its parameters as literals, since the stream of rows takes no parameters."""
        with session.connection.cursor() as cursor:
            sql: str = cursor.mogrify(statement.sql, statement.parameters)
            return sql


def _column(field: Any) -> BinlogColumn:
    """A column of a result, as the binlog would describe it."""
    kind, flags = field.type_code, field.flags
    column = BinlogColumn(field.name, 0, 0, not flags & _NOT_NULL, unsigned=bool(flags & _UNSIGNED))
    is_binary = field.charsetnr == BINARY_COLLATION

    def typed(type_: BinlogColumnType, meta: int = 0, collation: int = 0) -> BinlogColumn:
        return structs.replace(column, type=int(type_), meta=meta, collation=collation)

    if flags & (_ENUM | _SET):
        return typed(_T.VARCHAR, 0, _UTF8MB4)
    if kind in _AS_THEY_ARE:
        return typed(_T(kind), 4 if kind in (_T.JSON, _T.GEOMETRY) else 0)
    if kind in _WITH_FRACTION:
        return typed(_WITH_FRACTION[_T(kind)], field.scale if field.scale <= _FRACTION_MAX else 0)
    if kind in (_T.NEWDECIMAL, _T.DECIMAL):
        signs = (0 if flags & _UNSIGNED else 1) + (1 if field.scale else 0)  # the length counts sign and point
        return typed(_T.NEWDECIMAL, (field.length - signs) << 8 | field.scale)
    if kind == _T.BIT:
        return typed(_T.BIT, field.length)
    if kind == _T.NULL:
        return typed(_T.VARCHAR, 0, _UTF8MB4)
    return typed(_T.VARCHAR, 0, BINARY_COLLATION if is_binary else _UTF8MB4)


def _session_options(options: PollingOptions) -> MysqlOptions:
    address = options.address
    settings = address.settings
    return MysqlOptions(
        options.capture,
        address.host,
        address.port,
        address.user or "",
        address.password or "",
        settings.get("ssl_mode", "preferred"),
        settings.get("ssl_ca"),
        int(settings.get("connect_timeout_ms", "0")) or 30_000,
        {},
    )
