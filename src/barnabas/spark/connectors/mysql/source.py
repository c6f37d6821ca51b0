"""Shell: the source of changes of a MySQL or MariaDB server, a `ChangeSource` (`capture/ports.py`).

Changes are read from the binlog, from one place between two transactions to another one, by file and position. The same
two places always have the same events on one server. GTIDs are stored in the positions beside them: by these, a query
that is connected to another server finds its place there (`relocation.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import structs

from barnabas import __version__
from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.spark.connectors.capture.options import CaptureOptions, SnapshotMode
from barnabas.spark.connectors.capture.ports import CapturedChanges, Connector, Position, RowPositions, SnapshotStage
from barnabas.spark.connectors.events.changes import MySqlPositions, TableSchema
from barnabas.spark.connectors.mysql.binlog.statements import StatementKind
from barnabas.spark.connectors.mysql.binlog.transactions import SchemaChange, TransactionAssembler
from barnabas.spark.connectors.mysql.changes import CapturedTables, ChangeCollector
from barnabas.spark.connectors.mysql.columns import SnapshotTable, quote_name
from barnabas.spark.connectors.mysql.errors import (
    START_OVER,
    HistoryLostError,
    PositionError,
    ServerConnectionError,
    ServerSetupError,
)
from barnabas.spark.connectors.mysql.options import MYSQL_OPTIONS, MYSQL_REFUSED, parse_mysql_options
from barnabas.spark.connectors.mysql.orders import place_text
from barnabas.spark.connectors.mysql.positions import BinlogPosition, FilePosition
from barnabas.spark.connectors.mysql.server import ServerPlan
from barnabas.spark.connectors.mysql.server_binlogs import ServerBinlogs
from barnabas.spark.connectors.mysql.server_setup import read_cascade_warnings, read_plan, read_tables
from barnabas.spark.connectors.mysql.session import MysqlSession
from barnabas.spark.connectors.mysql.text_rows import decode_columns
from barnabas.spark.connectors.mysql.unlogged import versioned_error

log = logging.getLogger("barnabas.spark")

DECODED_BYTES: Final = 16 << 20
"""Bytes of rows after which whole transactions are decoded and given on."""

RECONNECTS: Final = 10
"""How often in a row a read connects again without having read a transaction."""

_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_QUIET_ATTEMPTS: Final = 20
"""How often a snapshot of MySQL tries to begin between two commits before it takes a lock."""
_QUIET_RETRY_S: Final = 0.02


def open_mysql(options: CaptureOptions) -> MysqlSource:
    """The source of these options, which connects when a method is called. Raises OptionError."""
    return MysqlSource(options)


def _is_alive(source: Any) -> bool:
    return bool(source.is_alive())


MYSQL: Final = Connector("barnabas.mysql", "mysql", __version__, MYSQL_OPTIONS, MYSQL_REFUSED, open_mysql, _is_alive)
MARIADB: Final = Connector(
    "barnabas.mariadb", "mariadb", __version__, MYSQL_OPTIONS, MYSQL_REFUSED, open_mysql, _is_alive
)


class MysqlSource:
    """The changes of tables of one server."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = parse_mysql_options(options)
        self._captured = CapturedTables(self._options.wants_table, options.wants_column, self._options.keys)
        self._opened: MysqlSession | None = None
        self._plan: ServerPlan | None = None
        self._found: dict[tuple[str, BinlogPosition], BinlogPosition] = {}
        """By a server and a position of another one: the position on that server."""
        self._starts = 0
        """The `failovers` of the position of the next snapshot."""

    @property
    def identity(self) -> str:
        # Without the server, which another one may replace: positions have the server.
        return f"MySQL source {self._options.capture.events.topic_prefix}"

    # -- setup

    def check(self, position: Position | None, *, begun: bool, lost: Position | None = None) -> None:
        self._starts = 0 if lost is None else _from_position(lost).failovers + 1
        if self._plan is None:  # not for each position of one start
            for warning in (*self._judged().warnings, *read_cascade_warnings(self._session(), self._tables())):
                log.warning("%s", warning)
        if position is not None:
            binlogs = self._binlogs()
            here = self._locate(binlogs, _from_position(position))
            binlogs.check_available(here)
            binlogs.check_begun(here)
            binlogs.check_history(here)

    def _judged(self) -> ServerPlan:
        if self._plan is None:
            tables = self._tables()
            self._plan = read_plan(self._session(), tables)
            if not tables and self._options.capture.snapshot_mode is not SnapshotMode.NO_DATA:
                raise ServerSetupError(
                    "no table is selected that the user may read: correct table.include.list, or run GRANT SELECT ON "
                    f"`the database`.* TO '{self._options.user}'@'its host';"
                )
        return self._plan

    def _binlogs(self) -> ServerBinlogs:
        return ServerBinlogs(self._options, self._session(), self._judged())

    def _locate(self, binlogs: ServerBinlogs, position: BinlogPosition) -> BinlogPosition:
        """The place of a position on this server, which may be another one since a failover.

        Raises PositionError or BinlogPurgedError if the position has no place here.
        """
        uuid = self._judged().server_uuid
        if position.server_uuid == uuid:
            return position
        key = (uuid, position)
        if key not in self._found:
            found = self._found[key] = binlogs.find(position)
            log.warning(
                "this is the server %s: the position %s of the server %s is %s here (GTIDs %s)",
                uuid,
                position.place,
                position.server_uuid,
                found.place,
                position.gtids,
            )
        return self._found[key]

    def _tables(self) -> list[SnapshotTable]:
        return read_tables(self._session(), self._captured)

    def read_tables(self) -> list[TableSchema]:
        return [self._captured.schema(one.table)[0] for one in self._tables()]

    # -- snapshot

    def take_snapshot(self, stage: SnapshotStage, *, rows: bool, follow: bool) -> Position:
        session = self._session()
        plan = self._judged()
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if plan.mariadb:
            session.run(_BEGIN)
            status = dict(session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'", "reading the snapshot's position"))
            place = FilePosition.of(status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"]))
            position = self._binlogs().at(place)
        else:
            position = self._begin_between_commits(session) or self._begin_locked(session)
        if rows:
            for one in self._tables():
                if not one.transactional:
                    log.warning(
                        "the table %s.%s has a storage engine without transactions: its rows may be newer than the "
                        "snapshot, so that changes after the snapshot come again",
                        one.table.database,
                        one.table.name,
                    )
                schema, indexes = self._captured.schema(one.table)
                stage.write(schema, self._table_rows(session, one, schema, indexes))
        session.run("COMMIT")
        begun = self._binlogs().begun(position.file)
        return _to_position(structs.replace(position, failovers=self._starts, begun=begun))

    def _begin_between_commits(self, session: MysqlSession) -> BinlogPosition | None:
        """Begin the transaction of a snapshot of MySQL at a moment without commits. None if there was no such moment,
        or the server has no GTIDs, which show the commits that are going on.
        """
        binlogs = self._binlogs()
        for _ in range(_QUIET_ATTEMPTS if self._judged().uses_gtids else 0):
            position = binlogs.position_between_commits()
            session.run(_BEGIN)
            if position is not None and binlogs.written() == position.place:
                return position
            session.run("ROLLBACK")
            time.sleep(_QUIET_RETRY_S)
        return None

    def _begin_locked(self, session: MysqlSession) -> BinlogPosition:
        """Begin the transaction of a snapshot of MySQL while a lock holds off all commits, for some milliseconds."""
        session.run("FLUSH TABLES WITH READ LOCK")
        session.run(_BEGIN)
        binlogs = self._binlogs()
        position = binlogs.at(binlogs.written())
        session.run("UNLOCK TABLES")
        return position

    def _table_rows(
        self, session: MysqlSession, one: SnapshotTable, schema: TableSchema, indexes: tuple[int, ...]
    ) -> Iterator[Any]:
        name = f"{one.table.database}.{one.table.name}"
        table = structs.replace(one.table, columns=tuple(one.table.columns[i] for i in indexes))
        selects = ", ".join(one.selects[i] for i in indexes)
        sql = f"SELECT {selects} FROM {quote_name(one.table.database)}.{quote_name(one.table.name)}"
        names = [column.name for column in schema.columns]
        zeros = 0
        for found in session.cells(sql, len(indexes), f"reading the table {name}"):
            arrays, zero_dates = decode_columns(table, found.cells)
            zeros += zero_dates
            yield pa.RecordBatch.from_arrays(arrays, names=names)
        if zeros:
            log.warning("%d dates of %s are null, since no calendar has them (such as 0000-00-00)", zeros, name)

    def snapshot_positions(self, position: Position, rows: int) -> RowPositions:
        begin = _from_position(position)
        return MySqlPositions(
            np.zeros(rows, np.int64),
            pa.nulls(rows, pa.string()),
            pa.array([begin.file] * rows, pa.string()),
            np.full(rows, begin.position, np.int64),
            np.zeros(rows, np.int64),
        )

    def snapshot_place(self, position: Position) -> str:
        begin = _from_position(position)
        return place_text(begin.place.number, begin.place.position, begin.failovers)

    # -- positions

    def find_end(self, start: Position, bytes_max: int | None, until: Position | None) -> Position:
        for attempt in range(RECONNECTS):
            try:
                return self._find_end(start, bytes_max, until)
            except ServerConnectionError:
                self.close()
                if attempt + 1 == RECONNECTS:
                    raise
                time.sleep(0.5 * (attempt + 1))
        raise AssertionError

    def find_target(self, start: Position) -> Position:
        return self.find_end(start, None, None)

    def _find_end(self, start: Position, bytes_max: int | None, until: Position | None) -> Position:
        binlogs = self._binlogs()
        begin = self._locate(binlogs, _from_position(start))
        binlogs.check_available(begin)
        written = binlogs.written()
        if written < begin.place:
            raise HistoryLostError(
                f"the server's binlogs end at {written}, before {begin.place}, up to which the query has read them: "
                "RESET MASTER was run, the server was restored, or it lost the end of its binlog in a crash (set "
                f"sync_binlog=1). To go on, {START_OVER}"
            )
        if until is not None:
            written = min(written, self._locate(binlogs, _from_position(until)).place)
        if written <= begin.place:
            return start
        binlogs.check_begun(begin)
        if bytes_max is not None and binlogs.distance(begin.place, written) > bytes_max:
            end = binlogs.boundary(begin, written, bytes_max)
        else:
            end = binlogs.at(written, begin)
        begun = begin.begun if begin.begun and end.file == begin.file else binlogs.begun(end.file)
        if not begin.begun:
            log.info("the query knows the binlog %s from now on by the time %d at which it begins", end.file, begun)
        return _to_position(structs.replace(end, failovers=begin.failovers, begun=begun))

    # -- changes

    def read(self, start: Position, end: Position) -> Iterator[CapturedChanges]:
        position, until = _from_position(start), _from_position(end)
        stop: FilePosition | None = None
        collector = ChangeCollector(
            self._captured,
            transaction_metadata=self._options.capture.events.transaction_metadata,
            truncates=self._options.capture.wants_truncates,
        )
        failures = 0
        while stop is None or position.place < stop:
            try:
                binlogs = self._binlogs()
                position, last = self._locate(binlogs, position), self._locate(binlogs, until)
                if last.failovers != collector.failovers and collector.pending_bytes:
                    yield collector.take()
                collector.failovers, stop = last.failovers, last.place
                if position.place >= stop:
                    break
                binlogs.check_available(position)
                assembler = TransactionAssembler(position)
                for _, event, reached in binlogs.events(position, stop):
                    transaction = assembler.handle(event)
                    if transaction is not None:
                        failures = 0
                        position = assembler.position
                        collector.add(transaction)
                        self._report(transaction.changes)
                        ends = any(isinstance(change, SchemaChange) for change in transaction.changes)
                        if collector.pending_bytes >= DECODED_BYTES or (ends and collector.pending_bytes):
                            yield collector.take()
                    if reached:
                        if assembler.in_transaction:
                            raise HistoryLostError(
                                f"{stop}, which was between two transactions, is inside of one now: the binlog was "
                                f"replaced. To go on, {START_OVER}"
                            )
                        position = structs.replace(last, failovers=position.failovers)
            except ServerConnectionError:
                self.close()
                failures += 1
                if failures > RECONNECTS:
                    raise
                log.warning("the connection to the server was lost at %s, connecting again", position.place)
                time.sleep(0.5 * failures)
        if collector.pending_bytes:
            yield collector.take()
        if collector.zero_dates:
            log.warning("%d dates are null, since no calendar has them (such as 0000-00-00)", collector.zero_dates)

    def confirm(self, position: Position) -> None:
        """Does nothing: a server keeps its binlogs for a time that its settings say."""

    def beat(self) -> None:
        query = self._options.capture.heartbeat_query
        if query:
            self._session().run(query)

    def is_alive(self) -> bool:
        """Whether there is a session, and the server answers in it."""
        return self._opened is not None and self._opened.is_alive()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._plan = None  # the next connection may lead to another server

    def _session(self) -> MysqlSession:
        if self._opened is None:
            self._opened = MysqlSession(self._options)
        return self._opened

    def _report(self, changes: tuple[Any, ...]) -> None:
        """Log what removes rows of captured tables without events.

        Raises ServerSetupError for a captured table that becomes one WITH SYSTEM VERSIONING.
        """
        silent = [StatementKind.DROP]
        if not self._options.capture.wants_truncates:
            silent.append(StatementKind.TRUNCATE)
        for change in changes:
            if not isinstance(change, SchemaChange):
                continue
            # A DROP of a whole database has no names of tables.
            tables = [one for one in change.tables if not one.table or self._captured.has(one.database, one.table)]
            if not tables:
                continue
            names = ", ".join(f"{one.database}.{one.table or '*'}" for one in tables)
            if change.kind in silent:
                log.warning("%s of %s has no events: the rows of the topic stay", change.kind.value.upper(), names)
            if change.without_rows:
                log.warning(
                    "ALTER TABLE ... %s of %s has no events: the topic keeps rows that it removed, and lacks rows that "
                    "it added",
                    change.without_rows,
                    names,
                )
            if change.versions:
                raise versioned_error((one.database, one.table) for one in tables)


def _to_position(position: BinlogPosition) -> Position:
    value: Position = msgspec.to_builtins(position)
    return value


def _from_position(position: Position) -> BinlogPosition:
    try:
        return msgspec.convert(position, BinlogPosition)
    except msgspec.ValidationError as error:
        raise PositionError(
            f"{position} is not a position in a binlog ({error}): use the checkpoint of this query, or a new one"
        ) from None
