"""Shell: the source of changes of a MySQL or MariaDB server, a `ChangeSource` (`capture/ports.py`).

Changes are read from the binlog, from one place between two transactions to another one, by file and position. The same
two places always have the same events on one server. GTIDs are stored in the positions beside them.
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
from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder
from barnabas.spark.connectors.mysql.binlog.statements import StatementKind
from barnabas.spark.connectors.mysql.binlog.transactions import SchemaChange, TransactionAssembler
from barnabas.spark.connectors.mysql.changes import CapturedTables, ChangeCollector
from barnabas.spark.connectors.mysql.columns import (
    COLUMNS_QUERY,
    KEYS_QUERY,
    SnapshotTable,
    quote_name,
    tables_of,
)
from barnabas.spark.connectors.mysql.errors import (
    PositionError,
    ServerConnectionError,
    ServerSetupError,
    SnapshotError,
)
from barnabas.spark.connectors.mysql.options import MYSQL_OPTIONS, MYSQL_REFUSED, parse_mysql_options
from barnabas.spark.connectors.mysql.orders import place_text
from barnabas.spark.connectors.mysql.positions import BinlogPosition, FilePosition
from barnabas.spark.connectors.mysql.server import VARIABLES, ServerPlan, check_available, judge, session_statements
from barnabas.spark.connectors.mysql.session import MysqlSession
from barnabas.spark.connectors.mysql.text_rows import decode_columns

log = logging.getLogger("barnabas.spark")

DECODED_BYTES: Final = 16 << 20
"""Bytes of rows after which whole transactions are decoded and given on."""

RECONNECTS: Final = 10
"""How often in a row a read connects again without having read a transaction."""


def open_mysql(options: CaptureOptions) -> MysqlSource:
    """The source of these options, which connects when a method is called. Raises OptionError."""
    return MysqlSource(options)


MYSQL: Final = Connector("barnabas.mysql", "mysql", __version__, MYSQL_OPTIONS, MYSQL_REFUSED, open_mysql)
MARIADB: Final = Connector("barnabas.mariadb", "mariadb", __version__, MYSQL_OPTIONS, MYSQL_REFUSED, open_mysql)


class MysqlSource:
    """The changes of tables of one server."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = parse_mysql_options(options)
        self._captured = CapturedTables(self._options.wants_table, options.wants_column, self._options.keys)
        self._opened: MysqlSession | None = None
        self._plan: ServerPlan | None = None

    @property
    def identity(self) -> str:
        return f"MySQL server {self._options.host}:{self._options.port}"

    # -- setup

    def check(self, position: Position | None, *, begun: bool) -> None:
        plan = self._judged()
        for warning in plan.warnings:
            log.warning("%s", warning)
        if position is not None:
            self._check_available(plan, _from_position(position))

    def _judged(self) -> ServerPlan:
        if self._plan is None:
            session = self._session()
            found = dict(session.rows("SHOW GLOBAL VARIABLES", "reading the variables"))
            variables = {name: found[name] for name in VARIABLES if name in found}
            grants = [row[0] for row in session.rows("SHOW GRANTS", "reading the privileges")]
            tables = self._tables()
            self._plan = judge(variables, grants, sorted({one.table.database for one in tables}))
            if not tables and self._options.capture.snapshot_mode is not SnapshotMode.NO_DATA:
                raise ServerSetupError(
                    "no table is selected that the user may read: correct table.include.list, or run GRANT SELECT ON "
                    f"`the database`.* TO '{self._options.user}'@'its host';"
                )
        return self._plan

    def _check_available(self, plan: ServerPlan, position: BinlogPosition) -> None:
        if position.server_uuid != plan.server_uuid:
            raise PositionError(
                f"the position {position.file}:{position.position} is of the server {position.server_uuid}, this is "
                f"the server {plan.server_uuid}, whose binlogs are others: connect to the server of the position, or "
                "start the query over with a new checkpoint and a new snapshot"
            )
        files = [row[0] for row in self._session().rows("SHOW BINARY LOGS", "listing the binlogs")]
        check_available(plan, structs.replace(position, gtids=""), files)

    def _tables(self) -> list[SnapshotTable]:
        session = self._session()
        columns = session.rows(COLUMNS_QUERY, "reading the tables")
        keys: Any = session.rows(KEYS_QUERY, "reading the primary keys")
        return tables_of([row for row in columns if self._captured.has(row[0], row[1])], keys)

    def read_tables(self) -> list[TableSchema]:
        return [self._captured.schema(one.table)[0] for one in self._tables()]

    # -- snapshot

    def take_snapshot(self, stage: SnapshotStage, *, rows: bool, follow: bool) -> Position:
        session = self._session()
        plan = self._judged()
        if not plan.mariadb:
            session.run("FLUSH TABLES WITH READ LOCK")
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        if plan.mariadb:
            status = dict(session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'", "reading the snapshot's position"))
            place = status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
        else:
            place = self._written()
            session.run("UNLOCK TABLES")
        gtids = self._gtids(plan, *place)
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
        return _to_position(BinlogPosition(*place, gtids, plan.server_uuid))

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
        place = _from_position(position).place
        return place_text(place.number, place.position)

    # -- positions

    def _written(self) -> tuple[str, int]:
        """The file and the position up to which the server has written its binlog, which is between transactions."""
        plan = self._plan
        renamed = plan is not None and not plan.mariadb and plan.version >= (8, 2)
        statement = "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS"
        found = self._session().rows(statement, "reading the position of the binlog")
        if not found:
            raise ServerSetupError("the server writes no binlog: set log_bin in its configuration, and restart it")
        return str(found[0][0]), int(found[0][1])

    def _gtids(self, plan: ServerPlan, file: str, position: int) -> str:
        """The GTIDs up to a place. MySQL's may lack transactions that are being committed."""
        if not plan.uses_gtids:
            return ""
        if plan.mariadb:
            sql = f"SELECT BINLOG_GTID_POS('{file}', {position})"
        else:
            sql = "SELECT @@global.gtid_executed"
        return str(self._session().rows(sql, "reading the GTIDs")[0][0] or "").replace("\n", "")

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
        begin = _from_position(start)
        plan = self._judged()
        self._check_available(plan, begin)
        written = FilePosition.of(*self._written())
        if until is not None:
            written = min(written, _from_position(until).place)
        if written <= begin.place:
            return start
        if bytes_max is not None and self._distance(begin.place, written) > bytes_max:
            return _to_position(self._boundary(plan, begin, written, bytes_max))
        gtids = self._gtids(plan, written.file, written.position)
        return _to_position(BinlogPosition(written.file, written.position, gtids, plan.server_uuid))

    def _distance(self, start: FilePosition, end: FilePosition) -> int:
        """The bytes of binlog between two places."""
        if start.number == end.number:
            return end.position - start.position
        sizes = {str(row[0]): int(row[1]) for row in self._session().rows("SHOW BINARY LOGS", "listing the binlogs")}
        between = sum(
            size for file, size in sizes.items() if start.number < FilePosition.of(file, 4).number < end.number
        )
        return sizes.get(start.file, 0) - start.position + between + end.position

    def _boundary(self, plan: ServerPlan, start: BinlogPosition, end: FilePosition, bytes_max: int) -> BinlogPosition:
        """The place behind the first transaction at which `bytes_max` is reached, or `end` if that is nearer."""
        size = 0
        assembler = TransactionAssembler(start)
        for raw, event, reached in self._events(plan, start, end):
            size += len(raw)
            if assembler.handle(event) is not None and size >= bytes_max:
                return assembler.position
            if reached:
                break
        return BinlogPosition(end.file, end.position, assembler.position.gtids, plan.server_uuid)

    # -- changes

    def read(self, start: Position, end: Position) -> Iterator[CapturedChanges]:
        position, stop = _from_position(start), _from_position(end).place
        collector = ChangeCollector(
            self._captured, transaction_metadata=self._options.capture.events.transaction_metadata
        )
        failures = 0
        while position.place < stop:
            try:
                plan = self._judged()
                self._check_available(plan, position)
                assembler = TransactionAssembler(position)
                for _, event, reached in self._events(plan, position, stop):
                    transaction = assembler.handle(event)
                    if transaction is not None:
                        failures = 0
                        position = assembler.position
                        collector.add(transaction)
                        _report(transaction.changes)
                        ends = any(isinstance(change, SchemaChange) for change in transaction.changes)
                        if collector.pending_bytes >= DECODED_BYTES or (ends and collector.pending_bytes):
                            yield collector.take()
                    if reached:
                        if assembler.in_transaction:
                            raise PositionError(f"{stop} is inside a transaction: start the query over with a snapshot")
                        position = BinlogPosition(stop.file, stop.position, "", plan.server_uuid)
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

    def _events(self, plan: ServerPlan, start: BinlogPosition, end: FilePosition) -> Iterator[tuple[bytes, Any, bool]]:
        """The events up to a place: their bytes, the events, and whether the place is reached.

        Raises PositionError if the binlog has no such place, and ServerConnectionError if it ends before.
        """
        session = MysqlSession(self._options)
        try:
            by_file = BinlogPosition(start.file, start.position, "", start.server_uuid)
            for statement in session_statements(plan, by_file):
                session.run(statement)
            decoder = BinlogDecoder(start.file, start.position, checksums=plan.checksums)
            for raw in session.events(start):
                event = decoder.decode(raw)
                here = FilePosition.of(decoder.file, decoder.position)
                if here > end:
                    raise PositionError(
                        f"the binlog has no event that ends at {end}, which an earlier read has seen: the server lost "
                        "the end of its binlog in a crash (set sync_binlog=1); start the query over with a new snapshot"
                    )
                yield raw, event, here == end
                if here == end:
                    return
            raise ServerConnectionError(f"the server's binlog ends before {end}: the query connects again")
        finally:
            session.close()

    def confirm(self, position: Position) -> None:
        """Does nothing: a server keeps its binlogs for a time that its settings say."""

    def beat(self) -> None:
        query = self._options.capture.heartbeat_query
        if query:
            self._session().run(query)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _session(self) -> MysqlSession:
        if self._opened is None:
            self._opened = MysqlSession(self._options)
        return self._opened


def _report(changes: tuple[Any, ...]) -> None:
    for change in changes:
        if isinstance(change, SchemaChange) and change.kind in (StatementKind.TRUNCATE, StatementKind.DROP):
            names = ", ".join(f"{one.database}.{one.table}" for one in change.tables)
            log.warning("%s of %s has no events: the rows of the topic stay", change.kind.value.upper(), names)


def _to_position(position: BinlogPosition) -> Position:
    value: Position = msgspec.to_builtins(position)
    return value


def _from_position(position: Position) -> BinlogPosition:
    try:
        return msgspec.convert(position, BinlogPosition)
    except msgspec.ValidationError as error:
        raise SnapshotError(
            f"{position} is not a position in a binlog ({error}): use the checkpoint of this query, or a new one"
        ) from None
