"""Shell: the source of changes of a PostgreSQL database, a `ChangeSource` (`capture/ports.py`).

Changes are read by peeking at a replication slot, up to a position that the server has flushed, so that the same range
can be read again with the same result. The slot is advanced only to positions that `confirm` is called with.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec import structs

from barnabas import __version__
from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.options import CaptureOptions, Output, SnapshotMode
from barnabas.spark.connectors.capture.ports import (
    GONE,
    CapturedChanges,
    Connector,
    LookedUp,
    Position,
    RowPositions,
    SnapshotStage,
)
from barnabas.spark.connectors.events.changes import ChangeBatch, PostgresPositions, TableSchema
from barnabas.spark.connectors.postgres.catalog import (
    describe_table,
    load_oids,
    load_primary_keys,
    load_publication,
    load_published_parts,
    load_server,
    load_slot,
    load_switches,
    load_tables,
    wanted_tables,
)
from barnabas.spark.connectors.postgres.change_batches import BatchContext, captured_changes, place_of
from barnabas.spark.connectors.postgres.changes import Batch, TableName
from barnabas.spark.connectors.postgres.errors import NoTableError, ServerNotReadyError, SlotError, SlotInUseError
from barnabas.spark.connectors.postgres.lsn import format_lsn, parse_lsn
from barnabas.spark.connectors.postgres.options import POSTGRES_OPTIONS, POSTGRES_REFUSED, parse_postgres_options
from barnabas.spark.connectors.postgres.peeking import BatchDivider
from barnabas.spark.connectors.postgres.position import from_position, to_position
from barnabas.spark.connectors.postgres.session import ConnectionLostError, LockedError, Session
from barnabas.spark.connectors.postgres.setup_state import Checkpoint, Server, Setup, Slot, Wanted
from barnabas.spark.connectors.postgres.slot import (
    check_partitions,
    check_position,
    check_tables,
    decide_setup,
    not_visible,
    plan_batch,
)
from barnabas.spark.connectors.postgres.snapshot import SnapshotCopy, table_columns, try_copy_tables
from barnabas.spark.connectors.postgres.statements import (
    LOCK_TIMEOUT,
    SNAPSHOT,
    advance,
    lock_table,
    peek,
    probe,
    select_by_keys,
)
from barnabas.spark.connectors.postgres.text_columns import convert
from barnabas.spark.connectors.postgres.transactions import ReaderOptions, TransactionReader
from barnabas.spark.connectors.sql.dialects import Statement
from barnabas.spark.identities import Belonging, belonging

log = logging.getLogger("barnabas.spark")

T = TypeVar("T")

PAGE_ROWS: Final = 5_000
"""Messages that are fetched at once from a peek."""

DECODED_BYTES: Final = 16 << 20
"""Bytes of messages after which whole transactions are decoded and given on."""

IDLE_BYTES: Final = 16 << 20
IDLE_SECONDS: Final = 10.0
"""When the log grows without changes of the captured tables, the position moves on after so many bytes or seconds, so
that the server can remove the log; not sooner, because each move is a micro-batch."""

CONFIRM_BYTES: Final = 4 << 20
CONFIRM_SECONDS: Final = 2.0
"""The slot is advanced after so many bytes of log or seconds, since the server decodes the log for that once more.
Until then it gives changes that are not confirmed to each read again, which drops them."""

VISIBLE_POLL_SECONDS: Final = 0.02
VISIBLE_WARN_SECONDS: Final = 10.0
"""How often a transaction that the log has is looked for, and when a warning says that it is not visible yet."""

LOOKED_UP_KEYS: Final = 200
"""Rows whose unchanged values are read from a table at once, in one transaction."""

SNAPSHOT_ATTEMPTS: Final = 10
SNAPSHOT_RETRY_SECONDS: Final = 0.2
"""How often a snapshot is begun while tables are rewritten, and how much longer each time the source waits before."""

_LOST: Final = "it was dropped or renamed, or has another type since, so that its unchanged values cannot be read"

_EXPORT: Final = Statement("SELECT pg_export_snapshot(), (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")


def open_postgres(options: CaptureOptions) -> PostgresSource:
    """The source of these options, which connects when a method is called. Raises OptionError."""
    return PostgresSource(options)


def _is_alive(source: Any) -> bool:
    return bool(source.is_alive())


def _look_up(source: Any, changes: ChangeBatch, columns: tuple[int, ...], keys: Sequence[tuple[Any, ...]]) -> LookedUp:
    found: LookedUp = source.look_up(changes, columns, keys)
    return found


CONNECTOR: Final = Connector(
    "barnabas.postgres",
    "postgresql",
    __version__,
    POSTGRES_OPTIONS,
    POSTGRES_REFUSED,
    open_postgres,
    _is_alive,
    look_up=_look_up,
)


class PostgresSource:
    """The changes of tables of one database, by one replication slot."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = parse_postgres_options(options)
        self._opened: Session | None = None
        self._checking: Session | None = None
        self._tables: tuple[TableName, ...] = ()
        self._setup = Setup()
        self._all_tables = False
        """Whether the publication has all tables, also those that are created later."""
        self._moved_at = time.monotonic()
        self._confirmed: tuple[int, float] | None = None
        """The position that was confirmed last, and when."""
        self._starts = 0
        """The `starts` of the position of the next snapshot."""

    @property
    def identity(self) -> str:
        options = self._options
        return f"PostgreSQL database {options.connection['dbname']}, slot {options.slot}"

    # -- setup

    def check(self, position: Position | None, *, begun: bool, lost: Position | None = None) -> None:
        session = self._session()
        checkpoint = None if position is None else from_position(position)
        server, slot = self._read_state(checkpoint)
        self._tables = wanted_tables(session, self._options)
        wanted = Wanted(
            self._options.slot,
            self._options.publication,
            self._tables,
            self._options.publication_mode,
            snapshot=self._options.capture.snapshot_mode is not SnapshotMode.NO_DATA,
            checkpoint=checkpoint,
            created_slot=begun,
            failover=self._options.failover,
            truncates=self._options.capture.wants_truncates,
            lost=None if lost is None else from_position(lost),
        )
        self._starts = 0 if wanted.lost is None else wanted.lost.starts + 1
        publication = load_publication(session, self._options.publication)
        self._all_tables = publication is not None and publication.all_tables
        self._setup = decide_setup(wanted, server, slot, publication, load_tables(session, self._tables))
        if checkpoint is not None:  # after the server: the OIDs of another server mean nothing
            self._check_tables(checkpoint)
        for statement in self._setup.statements:
            log.info("running %s", statement)
            session.run(statement, f"running {statement}")
        for warning in self._setup.warnings:
            log.warning("%s", warning)
        if self._setup.new_tables and position is not None:
            names = ", ".join(".".join(name) for name in self._setup.new_tables)
            log.warning("%s: captured from now on; the rows that the tables have already are not read", names)

    def _check_tables(self, checkpoint: Checkpoint) -> tuple[tuple[str, str], ...]:
        """The OIDs of the captured tables. Raises SlotError if one was replaced, unless failOnDataLoss is false."""
        found = load_oids(self._session(), self._tables)
        fails = self._options.capture.fails_on_data_loss
        for warning in check_tables(checkpoint, found, fails=fails, all_tables=self._all_tables):
            log.warning("%s", warning)
        return found

    def take_snapshot(self, stage: SnapshotStage, *, rows: bool, follow: bool) -> Position:
        if not follow:
            return self._take_rows(stage)
        session = self._session()
        if self._setup.drop_slot:
            self._drop_slot()
        server = load_server(session)
        if self._setup.create_slot is None:  # no_data, with a slot that exists
            slot = load_slot(session, server.version, self._options.slot)
            assert slot is not None and slot.confirmed_flush_lsn is not None
            return to_position(self._at(slot.confirmed_flush_lsn, server))
        for attempt in range(SNAPSHOT_ATTEMPTS):
            point = self._copy_with_slot(stage if rows else None)
            if point is not None:
                return to_position(self._at(point, server))
            time.sleep(attempt * SNAPSHOT_RETRY_SECONDS)
        raise ServerNotReadyError(
            f"in {SNAPSHOT_ATTEMPTS} attempts, tables were rewritten (ALTER TABLE, TRUNCATE) before they could be"
            " locked for the snapshot: start the query when the schema is left alone"
        )

    def _at(self, lsn: int, server: Server) -> Checkpoint:
        oids = load_oids(self._session(), self._tables)
        return Checkpoint(lsn, server.system_identifier, server.timeline, oids, self._starts)

    def _copy_with_slot(self, stage: SnapshotStage | None) -> int | None:
        """Create the slot, and copy the tables in its snapshot. The position from which the slot has changes; None, and
        the slot is dropped again, if tables were rewritten before they could be locked.
        """
        slot = self._options.slot
        partitioned = self._partitioned()
        # The exported snapshot is valid until the next command of this session, so the session stays open and silent.
        creating = Session(self._options, replication=True)
        try:
            _, point, snapshot, _ = creating.command(str(self._setup.create_slot), f"creating the slot {slot}")
            parts = load_published_parts(self._session(), self._options.publication)
            if stage is None or try_copy_tables(
                SnapshotCopy(self._options, self._tables, partitioned, str(snapshot), parts), stage
            ):
                return parse_lsn(point)
        finally:
            creating.close()
        self._drop_slot()
        return None

    def _drop_slot(self) -> None:
        drop = Statement("SELECT pg_drop_replication_slot(%s)", (self._options.slot,))
        self._retried(drop, "dropping the slot of an unfinished snapshot")

    def _take_rows(self, stage: SnapshotStage) -> Position:
        """A snapshot without a slot, exported by a session whose transaction stays open while the tables are copied."""
        session = self._session()
        self._tables = wanted_tables(session, self._options)
        if not self._tables:
            raise SlotError("no table is to be read: name at least one (table.include.list)")
        partitioned = self._partitioned()
        server = load_server(session)
        copied = False
        while not copied:
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "beginning the snapshot")
            ((name, lsn),) = session.rows(_EXPORT, "exporting a snapshot")
            copied = try_copy_tables(SnapshotCopy(self._options, self._tables, partitioned, name), stage)
            session.run("COMMIT", "ending the snapshot")
        return to_position(self._at(lsn, server))

    def _partitioned(self) -> frozenset[TableName]:
        tables = load_tables(self._session(), self._tables)
        return frozenset(table.name for table in tables if table.kind == "p")

    # -- positions

    def find_end(self, start: Position, bytes_max: int | None, until: Position | None) -> Position:
        return self._patiently(lambda: self._find_end(start, bytes_max, until))

    def find_target(self, start: Position) -> Position:
        return self.find_end(start, None, None)

    def _find_end(self, start: Position, bytes_max: int | None, until: Position | None) -> Position:
        begin = from_position(start)
        server, slot = self._read_state(begin)
        oids = self._check_tables(begin)
        if belonging(dict(begin.tables), dict(oids)) is Belonging.REPLACED and not self._all_tables:
            self.check(start, begun=False)  # which adds the new table to the publication
        plan = plan_batch(begin, server, slot, name=self._options.slot, wal_bytes_max=bytes_max)
        end = plan.end if until is None else min(plan.end, from_position(until).lsn)
        if end <= begin.lsn:
            return start
        grown = end - begin.lsn
        is_idle = grown < IDLE_BYTES and time.monotonic() - self._moved_at < IDLE_SECONDS
        assert slot is not None and slot.confirmed_flush_lsn is not None, "plan_batch has checked the slot"
        if (is_idle or until is not None) and slot.confirmed_flush_lsn >= begin.lsn:  # else it finds old changes
            query = probe(self._options.slot, self._options.publication, end)
            if not self._retried(query, f"looking for changes in the slot {self._options.slot}") and (
                is_idle or grown < IDLE_BYTES
            ):
                return start
        self._moved_at = time.monotonic()
        if not begin.timeline:
            log.info("the query knows the server's log from now on by its timeline %d", server.timeline)
        tables = tuple(sorted({**dict(begin.tables), **dict(oids)}.items()))  # also of tables that are dropped now
        return to_position(Checkpoint(end, begin.system_identifier, server.timeline, tables, begin.starts))

    def confirm(self, position: Position) -> None:
        lsn, now = from_position(position).lsn, time.monotonic()
        if self._confirmed is not None:
            before, at = self._confirmed
            if lsn - before < CONFIRM_BYTES and now < at + CONFIRM_SECONDS:
                return
        self._patiently(lambda: self._confirm(position))
        self._confirmed = (lsn, now)

    def _confirm(self, position: Position) -> None:
        checkpoint = from_position(position)
        server, slot = self._read_state(checkpoint)
        check_position(self._options.slot, checkpoint, server, slot)
        assert slot is not None and slot.confirmed_flush_lsn is not None
        if slot.confirmed_flush_lsn < checkpoint.lsn:
            doing = f"advancing the slot {self._options.slot} to {format_lsn(checkpoint.lsn)}"
            self._retried(advance(self._options.slot, checkpoint.lsn), doing)

    def snapshot_positions(self, position: Position, rows: int) -> RowPositions:
        lsn = from_position(position).lsn
        none = np.full(rows, -1, np.int64)
        return PostgresPositions(np.full(rows, lsn, np.int64), none, none)

    def snapshot_place(self, position: Position) -> str:
        checkpoint = from_position(position)
        return place_of(checkpoint.lsn, 0, checkpoint.starts)

    # -- changes

    def read(self, start: Position, end: Position) -> Iterator[CapturedChanges]:
        begin, stop = from_position(start), from_position(end)
        given = attempt = 0
        while True:
            try:
                for captured in islice(self._read_once(begin, stop), given, None):
                    yield captured
                    given += 1
                    attempt = 0
                return
            except ConnectionLostError as error:  # the next read gives the same, so that it can go on behind `given`
                self._reconnect_later(attempt, error)
                attempt += 1

    def _read_once(self, begin: Checkpoint, end: Checkpoint) -> Iterator[CapturedChanges]:
        reader = TransactionReader(begin.lsn, end.lsn, self._reader_options(self._session()))
        divider = BatchDivider(reader, DECODED_BYTES)
        options = self._options
        database = options.connection["dbname"]
        context = BatchContext(database, options.policy, options.capture, begin.lsn, starts=begin.starts)
        if options.capture.output is Output.ROWS:
            context.published = load_published_parts(self._session(), options.publication)
        is_checked = False
        for page in self._peek(end.lsn):
            if not is_checked:
                # The slot was used for the first page, and can only have moved forward: if it still is at the start,
                # the peek began there.
                self._check_start(begin)
                is_checked = True
            for batch in divider.feed(page):
                yield self._captured(batch, context)
        yield self._captured(divider.finish(), context)

    def _captured(self, batch: Batch, context: BatchContext) -> CapturedChanges:
        for truncate in () if self._options.capture.wants_truncates else batch.truncates:
            log.warning(
                "%s.%s was truncated at %s: its rows stay in topics and tables (skipped.operations has t)",
                truncate.relation.schema,
                truncate.relation.table,
                format_lsn(truncate.lsn),
            )
        return captured_changes(batch, context)

    def _check_start(self, begin: Checkpoint) -> None:
        """Refuse changes that a slot gave which begins after `begin`."""
        session = self._second_session()
        server = self._with_switches(load_server(session), begin)
        slot = load_slot(session, server.version, self._options.slot)
        check_position(self._options.slot, begin, server, slot)

    def look_up(self, changes: ChangeBatch, columns: tuple[int, ...], keys: Sequence[tuple[Any, ...]]) -> LookedUp:
        """The values that rows have now in some columns, by the keys of the rows. They are GONE if the table has no
        such column any more, or has it in another type.
        """
        assert isinstance(changes.positions, PostgresPositions)
        xids = frozenset(np.unique(changes.positions.xid).tolist())
        return self._patiently(lambda: self._look_up(changes.table, columns, keys, xids))

    def _wait_until_visible(self, session: Session, xids: frozenset[int]) -> None:
        """Wait for the transactions. The log may have a commit before other sessions see its rows: until a synchronous
        standby has confirmed it, for example.
        """
        begun = warned = time.monotonic()
        while True:
            ((xmax, running),) = session.rows(SNAPSHOT, "reading which transactions run")
            unseen = not_visible(xids, xmax, running)
            if not unseen:
                return
            now = time.monotonic()
            if now > warned + VISIBLE_WARN_SECONDS:
                warned = now
                log.warning(
                    "the transaction %d has been committed, and other sessions have not seen it for %d s: a synchronous"
                    " standby may be missing",
                    min(unseen),
                    now - begun,
                )
            time.sleep(VISIBLE_POLL_SECONDS)

    def _look_up(
        self, table: TableSchema, columns: tuple[int, ...], keys: Sequence[tuple[Any, ...]], xids: frozenset[int]
    ) -> LookedUp:
        session = self._second_session()
        self._wait_until_visible(session, xids)
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        lost: set[str] = set()
        for first in range(0, len(keys), LOOKED_UP_KEYS):
            rows, lacks = self._look_up_chunk(session, table, columns, keys[first : first + LOOKED_UP_KEYS])
            found.update(rows)
            lost.update(lacks)
        if lost:
            names = ", ".join(one.name for one in table.columns if one.name in lost)
            log.warning("%s has no column %s any more as the changes have it: %s", table.id, names, _LOST)
        return found

    def _look_up_chunk(
        self, session: Session, table: TableSchema, columns: tuple[int, ...], keys: Sequence[tuple[Any, ...]]
    ) -> tuple[LookedUp, list[str]]:
        """The values of some rows, and the columns that the table does not have any more. The table is locked for these
        rows only: an ALTER TABLE waits for the lock, and every other session waits for the ALTER TABLE.
        """
        doing, begun = f"reading unchanged values of {table.id}", time.monotonic()
        while True:
            try:
                with session.transaction(doing):
                    session.run(LOCK_TIMEOUT, doing)
                    return self._read_chunk(session, table, columns, keys, doing)
            except NoTableError:
                return {}, []
            except LockedError as error:
                waited = time.monotonic() - begun
                log.warning("%s. The query has waited for %d s, and goes on when that session ends", error, waited)

    def _read_chunk(
        self,
        session: Session,
        table: TableSchema,
        columns: tuple[int, ...],
        keys: Sequence[tuple[Any, ...]],
        doing: str,
    ) -> tuple[LookedUp, list[str]]:
        name = (table.schema, table.table)
        session.run(lock_table(name), doing)  # the columns stay as they are described
        now = table_columns(describe_table(session, name), self._options)
        kinds = {one.name: kind for one, kind in zip(now.schema.columns, now.kinds, strict=True)}
        wanted, width = [table.columns[at] for at in (*table.key, *columns)], len(table.key)
        read = [one for one in wanted if one.name in kinds and kinds[one.name].arrow.equals(one.type)]
        lost = [one.name for one in wanted if one not in read]
        if len(read) == width or wanted[:width] != read[:width]:
            return {}, lost
        names = [one.name for one in read]
        places = [names.index(one.name) if one in read else None for one in wanted[width:]]
        texts = session.texts(select_by_keys(name, names, width, keys), doing)
        values = [
            convert(pa.array(text, pa.binary()), kinds[one.name], self._options.policy, one.name).column.to_pylist()
            for text, one in zip(texts, read, strict=True)
        ]
        rows = zip(*values, strict=True)
        return {row[:width]: tuple(GONE if at is None else row[at] for at in places) for row in rows}, lost

    def _second_session(self) -> Session:
        """A session beside that of the peek, which is in a transaction."""
        if self._checking is not None and self._checking.is_broken:
            self._checking.close()
            self._checking = None
        if self._checking is None:
            self._checking = Session(self._options)
        return self._checking

    def _peek(self, end: int) -> Iterator[list[tuple[int, int, bytes]]]:
        statement = peek(self._options.slot, self._options.publication, end)
        for attempt in range(self._options.retries + 1):
            session = self._session()
            pages = session.pages(statement, PAGE_ROWS, f"reading the slot {self._options.slot}")
            try:
                with session.watched():  # the server decodes all changes before it gives the first page
                    first = next(pages, [])
            except SlotInUseError as error:
                self._wait(attempt, error)
                continue
            yield first
            yield from pages
            return

    def _reader_options(self, session: Session) -> ReaderOptions:
        """The captured tables and their keys. Changes may have been written before a table's replica identity was
        changed, so the primary keys of all tables without a configured key are read.
        """
        options = self._options
        keys = {
            (table.partition(".")[0], table.partition(".")[2]): columns
            for table, columns in options.capture.key_columns
        }
        names = wanted_tables(session, options)
        for table in load_tables(session, names):
            check_partitions(table)
        primary_keys = load_primary_keys(session, [name for name in names if name not in keys])
        truncates = options.capture.wants_truncates
        return ReaderOptions(keys, primary_keys, options.wants_table, count_truncates=truncates)

    # -- the rest of the port

    def read_tables(self) -> list[TableSchema]:
        session = self._session()
        names = wanted_tables(session, self._options)
        parts = load_published_parts(session, self._options.publication)
        return [table_columns(describe_table(session, name, parts.get(name)), self._options).schema for name in names]

    def beat(self) -> None:
        query = self._options.capture.heartbeat_query
        if query:
            self._session().run(query, "running heartbeat.action.query")

    def is_alive(self) -> bool:
        """Whether there is a session, and the server answers in it."""
        return self._opened is not None and self._opened.is_alive()

    def close(self) -> None:
        for session in (self._opened, self._checking):
            if session is not None:
                session.close()
        self._opened = self._checking = None

    # -- internal

    def _session(self) -> Session:
        """The open session; a new one if the server has closed it, so that a query survives a restart of the server."""
        if self._opened is not None and self._opened.is_broken:
            self.close()
        if self._opened is None:
            self._opened = Session(self._options)
        return self._opened

    def _patiently(self, action: Callable[[], T]) -> T:
        """The result of an action, which is tried again if the connection is lost."""
        attempt = 0
        while True:
            try:
                return action()
            except ConnectionLostError as error:
                self._reconnect_later(attempt, error)
                attempt += 1

    def _reconnect_later(self, attempt: int, error: ConnectionLostError) -> None:
        self.close()
        if attempt >= self._options.attempts:
            raise error
        log.warning("%s; trying again in %d ms", error, self._options.backoff_ms)
        time.sleep(self._options.backoff_ms / 1000)

    def _with_switches(self, server: Server, checkpoint: Checkpoint | None) -> Server:
        """The server with the history of its timelines, if the position has another one."""
        if checkpoint is None or checkpoint.timeline in (0, server.timeline) or server.timeline <= 1:
            return server
        return structs.replace(server, switches=load_switches(self._options, server.timeline))

    def _read_state(self, checkpoint: Checkpoint | None) -> tuple[Server, Slot | None]:
        """The server and the slot, for a position. A slot that is in use at this moment, perhaps by a task of an
        earlier run of the query which the server has not noticed to be gone, is waited for.
        """
        for attempt in range(self._options.retries + 1):
            session = self._session()
            server = load_server(session)
            slot = load_slot(session, server.version, self._options.slot)
            if slot is None or slot.active_pid is None:
                break
            if attempt < self._options.retries:
                self._wait(attempt, None)
        return self._with_switches(server, checkpoint), slot

    def _retried(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        attempt = 0
        while True:
            try:
                session = self._session()
                with session.watched():
                    return session.rows(statement, doing)
            except SlotInUseError as error:
                self._wait(attempt, error)
                attempt += 1

    def _wait(self, attempt: int, error: SlotInUseError | None) -> None:
        if error is not None and attempt >= self._options.retries:
            raise error
        log.warning("the slot %s is in use, trying again in %d ms", self._options.slot, self._options.retry_delay_ms)
        time.sleep(self._options.retry_delay_ms / 1000)
