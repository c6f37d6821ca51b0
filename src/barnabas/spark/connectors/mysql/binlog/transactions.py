"""Machine: the events of a binlog to committed transactions.

    MySQL     GTID, BEGIN, (TABLE_MAP.. rows..).., XID or COMMIT      GTID, DDL
    MariaDB   GTID,        (TABLE_MAP.. rows..).., XID or COMMIT      GTID flagged STANDALONE, DDL

A transaction is returned when its end has been read; before, nothing of it is known outside. The only places where
reading may stop and continue later are therefore behind XID, COMMIT and DDL. CREATE TABLE .. SELECT has its DDL inside
a transaction.

A server writes the rows of transactional tables into a transaction that ends with ROLLBACK, or that has ROLLBACK TO
SAVEPOINT, if the transaction also changed something that cannot be rolled back. Rows that were rolled back are
dropped: a server in row format writes the rows of non-transactional tables into transactions of their own.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.spark.connectors.mysql.binlog.codes import GTID_STANDALONE, ChangeKind
from barnabas.spark.connectors.mysql.binlog.events import (
    AnonymousGtid,
    BinlogTable,
    Event,
    FormatDescription,
    Gtid,
    Incident,
    MariadbGtid,
    MariadbGtidList,
    PreviousGtids,
    Query,
    Rotate,
    RowsEvent,
    StatementParameter,
    TableMap,
    TransactionPayload,
    XaPrepare,
    Xid,
)
from barnabas.spark.connectors.mysql.binlog.statements import BinlogStatement, StatementKind, TableName, classify
from barnabas.spark.connectors.mysql.errors import (
    START_OVER,
    BinlogError,
    BinlogLimitError,
    BinlogPurgedError,
    UnsupportedBinlogError,
)
from barnabas.spark.connectors.mysql.positions import BinlogPosition, GtidSet, MariadbGtidPosition

TRANSACTION_BYTES_MAX: Final = 4 << 30
"""The limit for the rows of one transaction, which are in memory until its end is read."""

_NO_TABLE: Final = 0xFFFFFF
"""The table id of a rows event without rows that only ends a statement."""


class RowChanges(Struct):
    """Rows events of one table that follow one another and can be decoded as one run: `RowDecoder(table).decode`."""

    table: BinlogTable
    kind: ChangeKind
    events: list[RowsEvent]


class SchemaChange(Struct, frozen=True):
    """DDL of tables or a database (`TableName` with an empty table): CREATE, ALTER, DROP, RENAME, TRUNCATE.

    `without_rows` and `versions` are those of `BinlogStatement`.
    """

    kind: StatementKind
    tables: tuple[TableName, ...]
    renamed_to: tuple[TableName, ...]
    database: str
    statement: str
    without_rows: str = ""
    versions: bool = False


class BinlogTransaction(Struct, frozen=True):
    """A committed transaction. Its changes are in their order; some transactions have none.

    `end` is the position behind it in `file`, `gtid` is empty on a MySQL server without GTIDs. `commit_us` is the time
    of the commit in microseconds since 1970; MariaDB and old versions of MySQL give whole seconds.
    """

    gtid: str
    file: str
    end: int
    server_id: int
    commit_us: int
    changes: tuple[RowChanges | SchemaChange, ...]
    row_bytes: int


class _Begun(Struct):
    """A transaction whose end is not read yet. `is_open` is false while only its GTID is read."""

    gtid: Gtid | MariadbGtid | None = None
    commit_us: int = 0
    is_open: bool = False
    changes: list[RowChanges | SchemaChange] = []
    savepoints: list[tuple[str, int, int]] = []
    """Name, number of changes, bytes of rows."""
    row_bytes: int = 0
    sealed: int = 0
    """The number of changes that a savepoint covers: they must not grow."""


class TransactionAssembler:
    """Groups the events of one server into transactions.

    `start` is where reading begins, behind a whole transaction. Its GTIDs are kept up to date; if they are empty, the
    first list of earlier GTIDs in the binlog is taken.
    """

    def __init__(self, start: BinlogPosition, *, transaction_bytes_max: int = TRANSACTION_BYTES_MAX) -> None:
        self._file = start.file
        self._end = start.position
        self._server_uuid = start.server_uuid
        self._gtids: GtidSet | MariadbGtidPosition | None = _parse_gtids(start.gtids)
        self._transaction_bytes_max = transaction_bytes_max
        self._tables: dict[int, BinlogTable] = {}
        self._begun: _Begun | None = None

    @property
    def position(self) -> BinlogPosition:
        """The position behind the last transaction that was returned: reading may continue there."""
        return BinlogPosition(self._file, self._end, str(self._gtids or ""), self._server_uuid)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun whose end is not read yet."""
        return self._begun is not None

    @property
    def pending_bytes(self) -> int:
        """The bytes of the rows of the transaction that has begun."""
        return self._begun.row_bytes if self._begun else 0

    def handle(self, event: Event) -> BinlogTransaction | None:
        """Take the next event. Returns a transaction if the event ends one.

        Raises BinlogError if the events do not form transactions, BinlogLimitError for a transaction that is too large,
        UnsupportedBinlogError for one that this package does not read, and BinlogPurgedError for an INCIDENT.
        """
        match event:
            case RowsEvent():
                self._add_rows(event)
            case TableMap():
                self._tables[event.table_id] = event.table
            case Query():
                return self._on_query(event)
            case Xid():
                return self._commit(event)
            case Gtid() | AnonymousGtid() | MariadbGtid():
                self._begin(event)
            case TransactionPayload():
                return self._on_payload(event)
            case XaPrepare():
                if not event.one_phase:
                    raise self._xa(event)
                return self._commit(event)
            case Rotate():
                self._on_rotate(event)
            case FormatDescription():  # the server restarted: what had begun was never committed
                self._begun = None
                self._tables.clear()
            case PreviousGtids() | MariadbGtidList():
                self._adopt(event)
            case Incident():
                raise BinlogPurgedError(
                    f"{self._where(event)}: the server reports that changes may be missing in its binlog (incident "
                    f"{event.code}: {event.message or 'no reason given'}). To go on, {START_OVER}"
                )
            case StatementParameter():
                raise self._statement(event, f"an event {event.name}")
            case _:
                pass
        return None

    def _where(self, event: Event) -> str:
        return f"{self._file or 'binlog'}:{event.end}"

    def _on_rotate(self, event: Rotate) -> None:
        """The next events are in another file. A server repeats the present file's name when a session begins."""
        if self._begun is None and (event.file != self._file or event.position > self._end):
            self._end = event.position
        self._file = event.file

    def _adopt(self, event: PreviousGtids | MariadbGtidList) -> None:
        if self._gtids is not None:
            return
        if isinstance(event, PreviousGtids):
            self._gtids = GtidSet.of(dict(event.intervals)) if event.intervals else None
            return
        position = MariadbGtidPosition()
        for gtid in event.gtids:  # the newest GTID of a domain is the last one
            position = position.with_gtid(*gtid)
        self._gtids = position or None

    def _begin(self, event: Gtid | AnonymousGtid | MariadbGtid) -> None:
        if self._begun is not None:
            raise BinlogError(
                f"{self._where(event)}: a transaction begins before the one before it has ended. Events are missing: "
                "restart the query; if the error repeats, take a new snapshot"
            )
        match event:
            case Gtid():
                self._begun = _Begun(event, event.commit_us)
            case MariadbGtid():
                self._begun = _Begun(event, is_open=not event.flags & GTID_STANDALONE)
            case _:
                self._begun = _Begun(None, event.commit_us)

    def _on_query(self, event: Query) -> BinlogTransaction | None:
        statement = classify(event.statement, event.database)
        match statement.kind:
            case StatementKind.BEGIN:
                self._open(event)
            case StatementKind.COMMIT:
                return self._commit(event)
            case StatementKind.ROLLBACK:
                begun = self._begun_by(event)
                begun.changes.clear()
                begun.row_bytes = 0
                return self._commit(event)
            case StatementKind.SAVEPOINT:
                begun = self._begun_by(event)
                begun.savepoints.append((statement.name.lower(), len(begun.changes), begun.row_bytes))
                begun.sealed = len(begun.changes)
            case StatementKind.ROLLBACK_TO:
                _roll_back_to(self._begun_by(event), statement.name.lower())
            case StatementKind.RELEASE:
                pass
            case StatementKind.XA:
                return self._on_xa(event, statement.name)
            case StatementKind.CHANGE:
                raise self._statement(event, f"the statement {event.statement[:200]!r}")
            case _:
                return self._on_ddl(event, statement)
        return None

    def _open(self, event: Query) -> None:
        if self._begun is not None and self._begun.is_open:
            raise BinlogError(
                f"{self._where(event)}: BEGIN inside a transaction. Events are missing: restart the query; if the "
                "error repeats, take a new snapshot"
            )
        if self._begun is None:
            self._begun = _Begun()
        self._begun.is_open = True

    def _on_ddl(self, event: Query, statement: BinlogStatement) -> BinlogTransaction | None:
        """DDL, or a statement without effect on rows and tables. It ends a transaction that has only its GTID."""
        begun = self._begun or _Begun()
        if statement.kind != StatementKind.OTHER:
            begun.changes.append(
                SchemaChange(
                    statement.kind,
                    statement.tables,
                    statement.renamed_to,
                    event.database,
                    event.statement,
                    statement.without_rows,
                    statement.versions,
                )
            )
        if begun.is_open:
            return None
        self._begun = begun
        begun.is_open = True
        return self._commit(event)

    def _on_xa(self, event: Query, word: str) -> BinlogTransaction | None:
        """XA START and END surround the rows of a branch. XA COMMIT names rows of an earlier, prepared transaction."""
        match word:
            case "START" | "BEGIN":
                self._open(event)
                return None
            case "END":
                return None
            case "ROLLBACK":
                return self._on_ddl(event, BinlogStatement(StatementKind.OTHER))
            case _:
                raise self._xa(event)

    def _on_payload(self, event: TransactionPayload) -> BinlogTransaction | None:
        result: BinlogTransaction | None = None
        for inner in event.events:
            if result is not None:
                raise BinlogError(f"{self._where(event)}: events follow the end of a compressed transaction")
            result = self.handle(inner)
        if result is None:
            raise BinlogError(
                f"{self._where(event)}: the compressed transaction has no end. Take a new snapshot, and check the "
                "server's binlog with mysqlbinlog"
            )
        return result

    def _begun_by(self, event: Event) -> _Begun:
        begun = self._begun
        if begun is None or not begun.is_open:
            raise BinlogError(
                f"{self._where(event)}: {type(event).__name__} without the beginning of its transaction. Reading began "
                "inside a transaction, or events are missing: continue from a position that a query has stored, or "
                "take a new snapshot"
            )
        return begun

    def _add_rows(self, event: RowsEvent) -> None:
        begun = self._begun_by(event)
        if event.table_id == _NO_TABLE and not event.data:
            self._tables.clear()
            return
        table = self._tables.get(event.table_id)
        if table is None:
            raise BinlogError(
                f"{self._where(event)}: rows of the table with id {event.table_id}, which no TABLE_MAP describes. "
                "Events are missing: restart the query; if the error repeats, take a new snapshot"
            )
        begun.row_bytes += len(event.data)
        if begun.row_bytes > self._transaction_bytes_max:
            raise BinlogLimitError(
                f"{self._where(event)}: the transaction has more than {self._transaction_bytes_max} bytes of rows, "
                "which a task keeps in memory until it reads the commit: change rows in smaller transactions, and "
                "start the query over with a new checkpoint, an empty stagingLocation and a new snapshot"
            )
        last = begun.changes[-1] if len(begun.changes) > begun.sealed else None
        if isinstance(last, RowChanges) and _same_run(last, table, event):
            last.events.append(event)
        else:
            begun.changes.append(RowChanges(table, event.kind, [event]))
        if event.ends_statement:
            self._tables.clear()

    def _commit(self, event: Event) -> BinlogTransaction:
        begun = self._begun_by(event)
        self._begun = None
        self._tables.clear()
        self._end = event.end
        gtid = ""
        match begun.gtid:
            case Gtid(uuid=uuid, number=number):
                gtid = f"{uuid}:{number}"
                known = self._gtids if isinstance(self._gtids, GtidSet) else GtidSet()
                self._gtids = known.with_gtid(uuid, number)
            case MariadbGtid(domain=domain, server_id=server_id, sequence=sequence):
                gtid = f"{domain}-{server_id}-{sequence}"
                position = self._gtids if isinstance(self._gtids, MariadbGtidPosition) else MariadbGtidPosition()
                self._gtids = position.with_gtid(domain, server_id, sequence)
        return BinlogTransaction(
            gtid,
            self._file,
            event.end,
            event.server_id,
            begun.commit_us or event.timestamp * 1_000_000,
            tuple(begun.changes),
            begun.row_bytes,
        )

    def _statement(self, event: Event, what: str) -> UnsupportedBinlogError:
        return UnsupportedBinlogError(
            f"{self._where(event)}: {what} changes rows and was logged as a statement, so that the rows are unknown. "
            "Run SET GLOBAL binlog_format = 'ROW' (in the configuration file, too), reconnect the writing sessions, "
            "and take a new snapshot"
        )

    def _xa(self, event: Event) -> UnsupportedBinlogError:
        return UnsupportedBinlogError(
            f"{self._where(event)}: the transaction is committed in two phases (XA PREPARE, XA COMMIT), which Barnabas "
            "does not read. Commit with XA COMMIT ... ONE PHASE, or without XA, and take a new snapshot"
        )


def _same_run(last: RowChanges, table: BinlogTable, event: RowsEvent) -> bool:
    """Whether the rows of an event can be decoded together with those before."""
    before = last.events[-1]
    return (
        (last.table is table or last.table == table)
        and last.kind == event.kind
        and (before.before, before.after) == (event.before, event.after)
    )


def _roll_back_to(begun: _Begun, name: str) -> None:
    """Drop the changes after a savepoint. A savepoint that is not logged was set before everything that is logged."""
    count = row_bytes = 0
    while begun.savepoints:
        known, count, row_bytes = begun.savepoints[-1]
        if known == name:
            break
        begun.savepoints.pop()
        count = row_bytes = 0
    del begun.changes[count:]
    begun.row_bytes = row_bytes
    begun.sealed = count


def _parse_gtids(text: str) -> GtidSet | MariadbGtidPosition | None:
    """A GTID set or a GTID position, or None for an empty text. Only GTID sets have colons."""
    if not text.strip():
        return None
    return GtidSet.parse(text) if ":" in text else MariadbGtidPosition.parse(text)
