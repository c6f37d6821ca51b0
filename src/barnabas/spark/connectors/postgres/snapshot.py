"""Shell: copies tables into a stage, as they are in one exported snapshot.

Each copying session first locks all tables in ACCESS SHARE mode, which blocks no reads and writes, and only then is the
snapshot exported: an ALTER TABLE that rewrites a table after the export would leave the table empty in the snapshot.
Sessions that lock later could wait for an ALTER TABLE that itself waits for the sessions that copy.
Source: PostgreSQL's manual, sections "LOCK", "SET TRANSACTION" and "Caveats" of chapter "Concurrency Control".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any, Final

import pyarrow as pa

from barnabas.spark.connectors.capture.ports import SnapshotStage
from barnabas.spark.connectors.postgres.catalog import TableDescription, describe_table
from barnabas.spark.connectors.postgres.changes import TableName
from barnabas.spark.connectors.postgres.copy_rows import copy_statement, decode_copy
from barnabas.spark.connectors.postgres.options import PostgresOptions
from barnabas.spark.connectors.postgres.session import Session
from barnabas.spark.connectors.postgres.tables import ReadColumns, read_columns
from barnabas.spark.connectors.postgres.text_columns import convert
from barnabas.spark.connectors.sql.dialects import Dialect, quote_for_display

log = logging.getLogger("barnabas.spark")

PIECE_BYTES: Final = 4 << 20
"""Text of rows that is parsed at once."""


def copy_tables(
    options: PostgresOptions,
    tables: Sequence[TableName],
    partitioned: frozenset[TableName],
    export: Callable[[], str],
    stage: SnapshotStage,
) -> None:
    """Write all rows of the tables to the stage. `export` is called when the tables are locked, and returns the
    name of a snapshot, which must stay valid until `copy_tables` returns.
    """
    with ExitStack() as stack:
        sessions = []
        for _ in range(max(1, min(options.capture.snapshot_threads, len(tables)))):
            session = Session(options)
            stack.callback(session.close)
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "beginning the snapshot")
            locked = ", ".join(_from(name, partitioned) for name in tables)
            session.run(f"LOCK TABLE {locked} IN ACCESS SHARE MODE", "locking the tables for the snapshot")
            sessions.append(session)
        snapshot = export()
        queue: SimpleQueue[TableName] = SimpleQueue()
        for name in tables:
            queue.put(name)
        with ThreadPoolExecutor(len(sessions), "snapshot") as pool:
            copies = [pool.submit(_copy_all, one, snapshot, queue, partitioned, options, stage) for one in sessions]
        for copy in copies:
            copy.result()


def _from(name: TableName, partitioned: frozenset[TableName]) -> str:
    path = ".".join(quote_for_display(Dialect.POSTGRES, part) for part in name)
    return path if name in partitioned else f"ONLY {path}"


def _copy_all(
    session: Session,
    snapshot: str,
    queue: SimpleQueue[TableName],
    partitioned: frozenset[TableName],
    options: PostgresOptions,
    stage: SnapshotStage,
) -> None:
    session.run(f"SET TRANSACTION SNAPSHOT '{snapshot}'", "using the exported snapshot")
    while True:
        try:
            name = queue.get_nowait()
        except Empty:
            return
        columns = table_columns(describe_table(session, name), options)
        log.info("copying the table %s for the snapshot", ".".join(name))
        stage.write(columns.schema, _batches(session, name, columns, _from(name, partitioned), options))


def table_columns(table: TableDescription, options: PostgresOptions) -> ReadColumns:
    """The columns of a table that the query reads."""
    relation = table.relation
    configured = dict(options.capture.key_columns).get(f"{relation.schema}.{relation.table}")
    database = options.connection["dbname"]
    return read_columns(database, relation, table.types, table.key(configured), options.policy, options.capture)


def _batches(
    session: Session, name: TableName, columns: ReadColumns, source: str, options: PostgresOptions
) -> Iterator[Any]:
    names = [column.name for column in columns.schema.columns]
    quoted = ", ".join(quote_for_display(Dialect.POSTGRES, column) for column in names)
    for piece in session.copy(copy_statement(quoted, source), PIECE_BYTES, f"copying the table {'.'.join(name)}"):
        values = decode_copy(piece, len(names))
        arrays = [
            convert(value, kind, options.policy, column).column
            for value, kind, column in zip(values, columns.kinds, names, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
