"""Shell: a database as a sink: tasks stage rows; the driver applies the rows of the attempts that Spark reports,
and updates the ledger, in one transaction.

What a crash leaves behind:

    a task before `finish`      stages that the next micro-batch drops
    a driver before the commit  stages, and a micro-batch that Spark repeats
    a driver after the commit   the same, and the ledger has the micro-batch
    the server                  stages without rows, since PostgreSQL empties unlogged tables when it recovers: this is
                                why the transaction counts the rows of the stages
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, Stage, StagedPart
from barnabas.spark.connectors.sinking.presence import keeps_null
from barnabas.spark.connectors.sql.dialects import Statement
from barnabas.spark.connectors.sql.sinks.errors import (
    DatabaseConflictError,
    DatabaseSinkError,
    DatabaseUnreachableError,
    RefusedRowsError,
)
from barnabas.spark.connectors.sql.sinks.naming import ledger_path, orphans, own_path, table_path
from barnabas.spark.connectors.sql.sinks.opening import open_session
from barnabas.spark.connectors.sql.sinks.options import SqlSinkOptions
from barnabas.spark.connectors.sql.sinks.planning import (
    StagedRowsPart,
    check_rows,
    missing_table,
    new_columns,
    plan_changes,
    wanted_columns,
)
from barnabas.spark.connectors.sql.sinks.ports import SinkSession, SqlTable, StageTable, TableColumn
from barnabas.spark.connectors.sql.sinks.staging import SqlStage
from barnabas.spark.connectors.sql.sinks.statements import (
    IDENTITY,
    add_column,
    as_statement,
    begin_ledger,
    count_rows,
    create_ledger,
    create_table,
    display_path,
    forget_job,
    move_ledger,
    old_jobs,
    read_ledger,
    upgrade_ledger,
)
from barnabas.spark.delivery.identity import LedgerEntry, Standing, decode_entry, encode_entry

log = logging.getLogger("barnabas.spark")

_LEDGER = "reading the ledger of micro-batches"


class SqlTarget(msgspec.Struct, frozen=True):
    """A SinkTarget: the tables of one query."""

    options: SqlSinkOptions

    def prepare(self, query_id: str | None) -> None:
        """Check that the database can be reached, create or upgrade the ledger, and drop orphaned stages."""
        with contextlib.closing(open_session(self.options)) as session:
            path = ledger_path(self.options)
            ledger = session.describe(path)
            if ledger is None:
                doing = "creating the ledger of micro-batches"
                self._create(session, path, create_ledger(self.options.dialect, path), doing)
            elif ledger.column(IDENTITY) is None:
                doing = f"adding the column {IDENTITY} to the ledger of micro-batches"
                self._upgrade(session, path, IDENTITY, upgrade_ledger(self.options.dialect, path), doing)
            found = orphans(session.list_stages(), query_id, int(time.time()))
            for name in found:
                try:
                    session.drop_stages([name])
                    log.info("the staging table %s of an earlier attempt is dropped", name)
                except DatabaseConflictError as error:
                    log.warning(
                        "the staging table %s of an earlier attempt stays until the next batch: %s", name, error
                    )

    def open_stage(self, attempt: AttemptId) -> Stage:
        return SqlStage(self.options, attempt)

    def publish(self, batch: BatchId, parts: Sequence[StagedPart]) -> None:
        """Apply the parts, and again after a lost connection or a deadlock: the ledger says whether a commit whose
        answer was lost took place."""
        tried = 0
        while True:
            try:
                with contextlib.closing(open_session(self.options, attempts=1)) as session:
                    self._publish(session, batch, [self._staged(part) for part in parts])
                return
            except (DatabaseUnreachableError, DatabaseConflictError) as error:
                tried += 1
                if tried > self.options.retries_max:
                    raise
                log.warning("micro-batch %d of %s is published again: %s", batch.batch_id, batch.query_id, error)
                time.sleep(self.options.backoff_ms / 1000)

    def discard(self, parts: Sequence[StagedPart]) -> None:
        """Drop the stages. If that is not possible now, the next micro-batch does it."""
        try:
            with contextlib.closing(open_session(self.options, attempts=1)) as session:
                session.drop_stages([self._staged(part).stage.name for part in parts])
        except DatabaseSinkError as error:
            log.info("staging tables of a failed micro-batch are not dropped now: %s", error)

    def _staged(self, part: StagedPart) -> StagedRowsPart:
        stage = msgspec.json.decode(part.place, type=StageTable)
        return StagedRowsPart(part, stage, own_path(self.options, stage.name))

    def _publish(self, session: SinkSession, batch: BatchId, parts: Sequence[StagedRowsPart]) -> None:
        dialect, path = self.options.dialect, ledger_path(self.options)
        stages = list({part.stage.name: part.stage for part in parts}.values())
        if batch.standing(lambda query_id: self._stored(session, query_id), self._name) is Standing.PUBLISH:
            tables = self._prepare_tables(session, parts)
            session.open_stages(stages)
            with session.transaction():
                self._apply(session, batch, parts, tables)
        else:
            log.info("micro-batch %d of %s is in the database already", batch.batch_id, batch.query_id)
        try:
            session.drop_stages([stage.name for stage in stages])
            if batch.is_job:
                old = [str(job) for (job,) in session.rows(old_jobs(dialect, path), _LEDGER)]
                for job in (batch.query_id, *old):
                    session.run(forget_job(dialect, path, job), _LEDGER)
        except DatabaseSinkError as error:  # the rows are in the tables; the next micro-batch drops the stages
            log.warning("staging tables are not dropped now: %s", error)

    def _apply(
        self,
        session: SinkSession,
        batch: BatchId,
        parts: Sequence[StagedRowsPart],
        tables: Sequence[tuple[SqlTable, Sequence[StagedRowsPart]]],
    ) -> None:
        """What the transaction does."""
        dialect, path = self.options.dialect, ledger_path(self.options)
        session.run(begin_ledger(dialect, path, batch.query_id), _LEDGER)
        standing = batch.standing(lambda query_id: self._stored(session, query_id, lock=True), self._name)
        if standing is Standing.PUBLISHED:  # by another driver of the query, a moment ago
            return
        self._count(session, parts)
        for table, of_table in tables:
            doing = f"writing to the table {display_path(dialect, table.path)}"
            for step in plan_changes(self.options, table, of_table):
                if step.kept:
                    ((count,),) = session.rows(step.statement, doing)
                    if count:
                        log.warning("%s", keeps_null(count, display_path(dialect, table.path), step.kept))
                    continue
                if not step.refusal:
                    session.run(step.statement, doing)
                    continue
                for key in session.rows(step.statement, doing):
                    raise RefusedRowsError(f"{doing} failed: the row with the key {key} {step.refusal}")
        identity = encode_entry(batch.entry())
        moved = move_ledger(dialect, path, batch.query_id, batch.batch_id, identity)
        session.run(moved, "moving the ledger of micro-batches")

    def _stored(self, session: SinkSession, query_id: str, *, lock: bool = False) -> LedgerEntry | None:
        """The newest micro-batch of a query in the ledger."""
        found = session.rows(read_ledger(self.options.dialect, ledger_path(self.options), query_id, lock=lock), _LEDGER)
        return decode_entry(found[0][1], int(found[0][0])) if found else None

    @property
    def _name(self) -> str:
        """The target in messages, and in what a repair decides."""
        return f"{self.options.rows.table_format} in {self.options.address}"

    def _count(self, session: SinkSession, parts: Sequence[StagedRowsPart]) -> None:
        """Raise DatabaseSinkError if a stage does not have all of its rows."""
        expected: dict[tuple[str, ...], int] = {}
        for part in parts:
            expected[part.path] = expected.get(part.path, 0) + part.part.rows
        counted = dict(session.rows(count_rows(self.options.dialect, list(expected)), "counting the staged rows"))
        for number, (path, rows) in enumerate(expected.items()):
            if counted.get(number) != rows:
                raise DatabaseSinkError(
                    f"the staging table {display_path(self.options.dialect, path)} has {counted.get(number)} of {rows}"
                    " rows: the server was restarted after the task, or another program changes the table. Nothing is"
                    " written: start the query again with its checkpoint"
                )

    def _prepare_tables(
        self, session: SinkSession, parts: Sequence[StagedRowsPart]
    ) -> list[tuple[SqlTable, Sequence[StagedRowsPart]]]:
        """The tables with their parts; tables are created and get new columns, if that is allowed."""
        by_path: dict[tuple[str, ...], list[StagedRowsPart]] = {}
        for part in parts:
            by_path.setdefault(table_path(self.options, part.part.table), []).append(part)
        found: list[tuple[SqlTable, Sequence[StagedRowsPart]]] = []
        for path, of_table in by_path.items():
            key = of_table[0].part.key
            schemas = [part.part.schema for part in of_table]
            if all(part.part.rows == part.part.deletes for part in of_table) and session.describe(path) is None:
                continue  # nothing to delete
            table = self._prepare_table(session, path, schemas, key)
            for part in of_table:
                inserts = part.part.rows > part.part.deletes
                check_rows(
                    self.options,
                    table,
                    part.stage.names,
                    part.part.key,
                    inserts=inserts,
                    unavailable=part.part.unavailable,
                )
            found.append((table, of_table))
        return found

    def _prepare_table(
        self, session: SinkSession, path: tuple[str, ...], schemas: Sequence[Any], key: tuple[str, ...]
    ) -> SqlTable:
        dialect = self.options.dialect
        wanted = wanted_columns(dialect, schemas, key, session.key_collation)
        shown = display_path(dialect, path)
        table = session.describe(path)
        if table is None:
            if not self.options.create:
                raise DatabaseSinkError(missing_table(self.options, path, wanted, key))
            statement = create_table(dialect, path, list(wanted.values()), key)
            self._create(session, path, as_statement(dialect, statement), f"creating the table {shown}")
            log.info("created: %s", statement)
        else:
            self._add_columns(session, table, new_columns(self.options, table, wanted))
        refreshed = session.describe(path)
        lost = next((name for name in wanted if refreshed is None or refreshed.column(name) is None), None)
        if refreshed is None or lost is not None:
            raise DatabaseSinkError(
                f"the table {shown} does not have the column {lost}, which was created or added: another program has"
                " changed the table, or the name is too long for the database. Rename the column"
            )
        return refreshed

    def _create(self, session: SinkSession, path: tuple[str, ...], statement: Statement, doing: str) -> None:
        """Create a table, unless another program does so at the same moment."""
        try:
            session.run(statement, doing)
        except DatabaseUnreachableError:
            raise
        except DatabaseSinkError:
            if session.describe(path) is None:
                raise

    def _add_columns(self, session: SinkSession, table: SqlTable, columns: Sequence[TableColumn]) -> None:
        """Add columns, except those that another program has added meanwhile."""
        dialect = self.options.dialect
        for column in columns:
            statement = add_column(dialect, table.path, column)
            doing = f"adding a column to the table {display_path(dialect, table.path)}"
            self._upgrade(session, table.path, column.name, as_statement(dialect, statement), doing)

    def _upgrade(
        self, session: SinkSession, path: tuple[str, ...], column: str, statement: Statement, doing: str
    ) -> None:
        """Add a column, unless another program does so at the same moment."""
        try:
            session.run(statement, doing)
        except DatabaseUnreachableError:
            raise
        except DatabaseSinkError:
            now = session.describe(path)
            if now is None or now.column(column) is None:
                raise
        else:
            log.info("a new column: %s", statement.sql)
