"""Shell: copies tables into a stage, as they are in one exported snapshot.

An ALTER TABLE or TRUNCATE that gives a table new files after the snapshot leaves the table empty in the snapshot. So
the first session locks all tables in ACCESS SHARE mode, which blocks no reads and writes, and then compares their files
with those of the snapshot; if some are new, nothing has been written yet and the caller exports another snapshot. The
locks cannot be taken before the export: creating a slot waits for every running transaction, also for an ALTER TABLE
that would wait for the locks. The other sessions lock without waiting, because a lock that waits behind an ALTER TABLE
would wait for the first session.
Source: PostgreSQL's manual, sections "LOCK", "SET TRANSACTION" and "Caveats" of chapter "Concurrency Control".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from barnabas.spark.connectors.capture.ports import SnapshotStage
from barnabas.spark.connectors.postgres.catalog import TableDescription, describe_table
from barnabas.spark.connectors.postgres.changes import TableName
from barnabas.spark.connectors.postgres.copy_rows import copy_statement, decode_copy
from barnabas.spark.connectors.postgres.options import PostgresOptions
from barnabas.spark.connectors.postgres.session import LockedError, Session
from barnabas.spark.connectors.postgres.setup_state import PublishedPart
from barnabas.spark.connectors.postgres.statements import read_rewritten
from barnabas.spark.connectors.postgres.tables import ReadColumns, read_columns
from barnabas.spark.connectors.postgres.text_columns import convert
from barnabas.spark.connectors.sql.dialects import Dialect, quote_for_display

log = logging.getLogger("barnabas.spark")

PIECE_BYTES: Final = 4 << 20
"""Text of rows that is parsed at once."""

LOCK_RETRY_SECONDS: Final = 0.5
"""How long another session waits before it tries again to lock the tables."""


class SnapshotCopy(Struct, frozen=True):
    """What is copied: the tables, which of them are partitioned, the name of the exported snapshot, which must stay
    valid until the copy ends, and the parts of tables that are published: the changes have no others.
    """

    options: PostgresOptions
    tables: tuple[TableName, ...]
    partitioned: frozenset[TableName]
    snapshot: str
    published: Mapping[TableName, PublishedPart] = {}

    def source_of(self, name: TableName) -> str:
        """The table in a statement, without those that inherit from it."""
        path = ".".join(quote_for_display(Dialect.POSTGRES, part) for part in name)
        return path if name in self.partitioned else f"ONLY {path}"

    @property
    def lock(self) -> str:
        """The statement that locks all tables."""
        return f"LOCK TABLE {', '.join(map(self.source_of, self.tables))} IN ACCESS SHARE MODE"


def try_copy_tables(copy: SnapshotCopy, stage: SnapshotStage) -> bool:
    """Write all rows of the tables to the stage. False, and nothing is written, if tables have new files since the
    snapshot was exported.
    """
    with ExitStack() as stack:
        sessions = []
        for _ in range(max(1, min(copy.options.capture.snapshot_threads, len(copy.tables)))):
            session = Session(copy.options)
            stack.callback(session.close)
            sessions.append(session)
        _begin(sessions[0], copy)
        sessions[0].run(copy.lock, "locking the tables for the snapshot")
        rewritten = sessions[0].rows(read_rewritten(copy.tables), "comparing the files of the tables")
        if rewritten:
            names = ", ".join(".".join(name) for name in rewritten)
            log.warning("%s: rewritten while the snapshot was begun, beginning again", names)
            return False
        queue: SimpleQueue[TableName] = SimpleQueue()
        for name in copy.tables:
            queue.put(name)
        with ThreadPoolExecutor(len(sessions), "snapshot") as pool:
            others = [pool.submit(_copy_as_other, session, copy, queue, stage) for session in sessions[1:]]
            _copy_queue(sessions[0], copy, queue, stage)
        for other in others:
            other.result()
    return True


def _begin(session: Session, copy: SnapshotCopy) -> None:
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "beginning the snapshot")
    session.run(f"SET TRANSACTION SNAPSHOT '{copy.snapshot}'", "using the exported snapshot")


def _copy_as_other(session: Session, copy: SnapshotCopy, queue: SimpleQueue[TableName], stage: SnapshotStage) -> None:
    """Copy tables from the queue as soon as all tables can be locked at once; the first session copies meanwhile."""
    while not queue.empty():
        _begin(session, copy)
        try:
            session.run(f"{copy.lock} NOWAIT", "locking the tables for the snapshot")
        except LockedError:
            session.run("ROLLBACK", "trying again to lock the tables")
            time.sleep(LOCK_RETRY_SECONDS)
            continue
        _copy_queue(session, copy, queue, stage)


def _copy_queue(session: Session, copy: SnapshotCopy, queue: SimpleQueue[TableName], stage: SnapshotStage) -> None:
    while True:
        try:
            name = queue.get_nowait()
        except Empty:
            return
        columns = table_columns(describe_table(session, name, copy.published.get(name)), copy.options)
        log.info("copying the table %s for the snapshot", ".".join(name))
        stage.write(columns.schema, _batches(session, name, columns, copy))


def table_columns(table: TableDescription, options: PostgresOptions) -> ReadColumns:
    """The columns of a table that the query reads."""
    relation = table.relation
    configured = dict(options.capture.key_columns).get(f"{relation.schema}.{relation.table}")
    database = options.connection["dbname"]
    return read_columns(database, relation, table.types, table.key(configured), options.policy, options.capture)


def _batches(session: Session, name: TableName, columns: ReadColumns, copy: SnapshotCopy) -> Iterator[Any]:
    names = [column.name for column in columns.schema.columns]
    quoted = ", ".join(quote_for_display(Dialect.POSTGRES, column) for column in names)
    published = copy.published.get(name)
    statement = copy_statement(quoted, copy.source_of(name), None if published is None else published.rows)
    for piece in session.copy(statement, PIECE_BYTES, f"copying the table {'.'.join(name)}"):
        values = decode_copy(piece, len(names))
        arrays = [
            convert(value, kind, copy.options.policy, column).column
            for value, kind, column in zip(values, columns.kinds, names, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
