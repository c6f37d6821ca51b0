"""Shell: PostgreSQL as a database that can be polled. Types are those of the change capture of `postgres/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas import __version__
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.events.changes import TableSchema
from barnabas.spark.connectors.polling.counted_history import PARTITIONS_MAX
from barnabas.spark.connectors.polling.errors import PolledTableError
from barnabas.spark.connectors.polling.options import PollingOptions, TableKind, parse_polling_options
from barnabas.spark.connectors.polling.output import QUERY, make_polled_output, polled_columns
from barnabas.spark.connectors.polling.ports import PolledColumns
from barnabas.spark.connectors.polling.source import PollingSource
from barnabas.spark.connectors.postgres.catalog import load_switches
from barnabas.spark.connectors.postgres.copy_rows import decode_copy
from barnabas.spark.connectors.postgres.errors import PostgresError
from barnabas.spark.connectors.postgres.lsn import parse_lsn
from barnabas.spark.connectors.postgres.messages import Column, TypeName
from barnabas.spark.connectors.postgres.options import POSTGRES_OPTIONS, PostgresOptions
from barnabas.spark.connectors.postgres.session import ConnectionLostError, Session, readable
from barnabas.spark.connectors.postgres.setup_state import PublicationMode
from barnabas.spark.connectors.postgres.slot import missed_by
from barnabas.spark.connectors.postgres.statements import TIMELINE
from barnabas.spark.connectors.postgres.tables import column_schema
from barnabas.spark.connectors.postgres.text_columns import convert
from barnabas.spark.connectors.postgres.types import FIRST_NAMED_TYPE, ColumnType, ValuePolicy, column_type
from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_identifier
from barnabas.spark.connectors.sql.polling import PolledTable, TimeForm, can_see_transactions
from barnabas.spark.errors import OptionError
from barnabas.spark.identities import Marks

PIECE_BYTES: Final = 4 << 20
"""Text of rows that is parsed at once."""

_POLICY: Final = ("out.of.range.handling.mode", "nan.handling.mode", "array.handling.mode")
_KINDS: Final = {"r": TableKind.TABLE, "p": TableKind.TABLE, "f": TableKind.TABLE, "v": TableKind.VIEW}
_KINDS["m"] = TableKind.VIEW
_TABLES: Final = (
    "SELECT n.nspname::text, c.relname::text, c.relkind::text FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND NOT c.relispartition"
    " AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'"
    " AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')"
)
_TYPE_NAMES: Final = (
    "SELECT t.oid::bigint, n.nspname::text, t.typname::text FROM pg_type t JOIN pg_namespace n"
    " ON n.oid = t.typnamespace WHERE t.oid = ANY(%s)"
)
_NOT_NULL: Final = (
    "SELECT a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND a.attnotnull"
)

_MARK_NAMES: Final = ("system", "timeline", "oid", "file")
_SYSTEM: Final = (
    "SELECT (SELECT system_identifier::text FROM pg_control_system()),"
    " CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())"
    f" ELSE {TIMELINE} END::text"
)
MARKS: Final = (
    f"{_SYSTEM}, c.oid::text, pg_relation_filenode(c.oid)::text"
    " FROM (SELECT) AS one LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " AND n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'm')) ON true"
)
"""The server, its history, which a restored backup and a promoted standby leave, the table, and the file, which
TRUNCATE replaces, and other commands that rewrite the table, too. A view has the first two."""

_PARTITIONS: Final = (
    "WITH RECURSIVE part(id) AS (SELECT %s::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN part"
    " ON i.inhparent = part.id) SELECT 'file of ' || c.relname, pg_relation_filenode(c.oid)::text"
    f" FROM part JOIN pg_class c ON c.oid = part.id WHERE c.relkind = 'r' ORDER BY c.oid DESC LIMIT {PARTITIONS_MAX}"
)
"""The files of the partitions of a table, which has none itself."""

MOMENT: Final = "lsn"
FLUSHED: Final = "flushed"
_INSERTED: Final = (
    "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text"
)
_FLUSHED: Final = "CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_flush_lsn() END::text"
_MOMENT: Final = (
    "WITH RECURSIVE part(id) AS (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = %s"
    " UNION SELECT i.inhrelid FROM pg_inherits i JOIN part ON i.inhparent = part.id)"
    f" SELECT CASE WHEN bool_and(c.relpersistence = 'p') THEN {_INSERTED} END, {_FLUSHED}"
    " FROM part JOIN pg_class c ON c.oid = part.id"
)
"""A position in the log behind the commits of all rows that were read before, and how much of the log is on the disk.
The first is NULL for a table that is not logged, or has a part that is not: it is empty after a promotion."""

Switches = Sequence[tuple[int, int]]
"""Each earlier timeline of a server, and where its log left it."""

POSTGRES_POLLING_OPTIONS: Final = tuple(row for row in POSTGRES_OPTIONS if row.name in _POLICY)


def parse_postgres_polling(texts: Mapping[str, str]) -> CaptureOptions:
    """Raises OptionError."""
    return _parse(texts).capture


def _parse(texts: Mapping[str, str]) -> PollingOptions:
    options = parse_polling_options(texts, Dialect.POSTGRES, POSTGRES_POLLING_OPTIONS)
    if not options.address.user:
        raise OptionError("connection.user must be given: a role that may read the tables")
    return options


def open_postgres_polling(options: CaptureOptions) -> PollingSource:
    """The source of these options, which connects when a method is called."""
    parsed = _parse(options.given.texts)
    return PollingSource(parsed, PostgresDatabase(parsed))


POSTGRES_POLLING: Final = Connector(
    "barnabas.postgres",
    "postgresql",
    __version__,
    POSTGRES_POLLING_OPTIONS,
    {},
    open_postgres_polling,
    parse=parse_postgres_polling,
    columns=polled_columns,
    output=make_polled_output,
)


class PostgresDatabase:
    """A PolledDatabase."""

    lost: tuple[type[Exception], ...] = (ConnectionLostError,)

    def __init__(self, options: PollingOptions) -> None:
        given = options.given
        policy = ValuePolicy(*(given.get(name) for name in _POLICY))
        self._options = _session_options(options, policy)
        self._waits_for_transactions = options.template.uses_time
        self._kinds: tuple[ColumnType, ...] = ()
        self._opened: Session | None = None

    def list_tables(self, kinds: frozenset[TableKind]) -> list[tuple[str, ...]]:
        rows = self.rows(Statement(_TABLES), "listing the tables")
        return [(schema, table) for schema, table, kind in rows if _KINDS[kind] in kinds]

    def describe(self, table: PolledTable) -> PolledColumns:
        schema, name = ("", QUERY) if table.query is not None else table.path
        doing = f"reading the columns of {schema}.{name}" if schema else "reading the columns of the query"
        session = self._session()
        with readable(doing):
            cursor = session.connection.execute(f"SELECT * FROM {table.source} LIMIT 0", ())
            result = cursor.pgresult
            described = [
                Column(column.name, result.ftype(place), result.fmod(place), False)
                for place, column in enumerate(cursor.description or ())
            ]
        named = [column.type_oid for column in described if column.type_oid >= FIRST_NAMED_TYPE]
        types = {oid: TypeName(oid, *names) for oid, *names in self.rows(Statement(_TYPE_NAMES, (named,)), doing)}
        not_null = set()
        if table.query is None:
            not_null = {row[0] for row in self.rows(Statement(_NOT_NULL, table.path), doing)}
        self._kinds = tuple(column_type(column, types, self._options.policy) for column in described)
        columns = tuple(
            column_schema(column, kind, self._options.policy, nullable=column.name not in not_null)
            for column, kind in zip(described, self._kinds, strict=True)
        )
        forms = {one.name: TimeForm.NATIVE for one in columns if pa.types.is_timestamp(one.type)}
        zoned = frozenset(one.name for one in columns if pa.types.is_timestamp(one.type) and one.type.tz)
        selected = ", ".join(quote_identifier(Dialect.POSTGRES, column.name) for column in columns)
        database = self._options.connection["dbname"]
        return PolledColumns(TableSchema(database, schema, name, columns, ()), selected, forms, zoned)

    def marks(self, table: PolledTable) -> Marks:
        statement = Statement(_SYSTEM) if table.query is not None else Statement(MARKS, table.path)
        (found,) = self.rows(statement, "reading the numbers of the server and of the table")
        marks = {name: one for name, one in zip(_MARK_NAMES, found, strict=False) if one}
        if "oid" in marks and "file" not in marks:
            marks |= dict(self.rows(Statement(_PARTITIONS, (marks["oid"],)), "reading the numbers of the partitions"))
        return marks

    def moment(self, table: PolledTable) -> Marks:
        of_query = Statement(f"SELECT {_INSERTED}, {_FLUSHED}")
        statement = of_query if table.query is not None else Statement(_MOMENT, table.path)
        (found,) = self.rows(statement, "reading the position of the log")
        return {name: one for name, one in zip((MOMENT, FLUSHED), found, strict=True) if one}

    def gap(self, stored: Marks, found: Marks) -> str | None:
        return timeline_gap(stored, found, self._switches, self._flushed, self._options.connection["user"])

    def _flushed(self) -> str | None:
        ((lsn,),) = self.rows(Statement(f"SELECT {_FLUSHED}"), "reading the position of the log")
        return None if lsn is None else str(lsn)

    def _switches(self, timeline: int) -> Switches:
        return load_switches(self._options, timeline)

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        return self._session().rows(statement, doing)

    def batches(self, statement: Statement, columns: PolledColumns, doing: str) -> Iterator[Any]:
        names = [column.name for column in columns.schema.columns]
        kinds, policy = self._kinds, self._options.policy
        session = self._session()
        with readable(doing):
            import psycopg

            sql = psycopg.ClientCursor(session.connection).mogrify(statement.sql, statement.parameters)
        copy = f"COPY ({sql}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
        for piece in session.copy(copy, PIECE_BYTES, doing):
            arrays = [
                convert(value, kind, policy, name).column
                for value, kind, name in zip(decode_copy(piece, len(names)), kinds, names, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    def end_poll(self) -> None:
        """Does nothing: an idle connection keeps nobody out."""

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _session(self) -> Session:
        if self._opened is None:
            self._opened = Session(self._options)
            if self._waits_for_transactions:
                self._check_transactions(self._opened)
        return self._opened

    def _check_transactions(self, session: Session) -> None:
        """Refuse a role that cannot see when transactions began: rows of a long one would be missed."""
        ((sees,),) = session.rows(can_see_transactions(), "reading the privileges")
        if not sees:
            user = quote_identifier(Dialect.POSTGRES, self._options.connection["user"])
            raise PolledTableError(
                "the role cannot see when transactions of other roles began, and a row that is committed late would be"
                f" missed. Run: GRANT pg_read_all_stats TO {user};"
            )


def timeline_gap(
    stored: Marks, found: Marks, load: Callable[[int], Switches], flushed: Callable[[], str | None], user: str
) -> str | None:
    """The gap (`PolledDatabase.gap`) between marks of which only the timeline differs, or none. `load` reads the
    history of a timeline, and `flushed` how much of the log is on the disk; None for a standby, which only lags behind.
    """
    differing = {name for name, mark in found.items() if stored.get(name, mark) != mark}
    if not differing:
        end = flushed() if FLUSHED in stored else None
        if end is None or parse_lsn(end) >= parse_lsn(stored[FLUSHED]):
            return None
        return f" The query has read up to {stored[FLUSHED]} of the server's log, which ends at {end} now."
    if differing != {"timeline"} or MOMENT not in stored:
        return ""
    timeline, lsn = int(found["timeline"]), stored[MOMENT]
    try:
        switches = load(timeline) if timeline > 1 else ()
    except PostgresError as error:  # also if the server takes no replication connection from the role
        role = quote_identifier(Dialect.POSTGRES, user)
        return (
            f" Whether the server has all that was read cannot be seen: {error}. If a standby was promoted without"
            f" loss, let the role read the history of timelines (ALTER ROLE {role} REPLICATION), and start the query"
            " again."
        )
    where = missed_by(switches, int(stored["timeline"]), parse_lsn(lsn))
    return None if where is None else f" The query has read up to {lsn} of the server's log, and the server {where}."


def _session_options(options: PollingOptions, policy: ValuePolicy) -> PostgresOptions:
    address = options.address
    connection = {
        **{name: value for name, value in address.settings.items() if name != "search_path"},
        "host": address.host,
        "port": address.port,
        "user": address.user,
        "password": address.password or "",
        "dbname": address.database,
    }
    return PostgresOptions(options.capture, connection, "poll", "", PublicationMode.DISABLED, False, 0, 0, 1, 0, policy)
