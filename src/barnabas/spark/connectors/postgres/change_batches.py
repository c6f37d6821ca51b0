"""Machine: decoded changes of whole transactions, as the change batches that the events are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct, structs

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.planning import era
from barnabas.spark.connectors.capture.ports import CapturedChanges, TableChange
from barnabas.spark.connectors.events.changes import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    ChangeBatch,
    ChangedTransaction,
    PostgresPositions,
    TableSchema,
)
from barnabas.spark.connectors.postgres import pgoutput
from barnabas.spark.connectors.postgres.changes import Batch, TableChanges, TableName, TruncatedTable
from barnabas.spark.connectors.postgres.pgoutput import Tuples
from barnabas.spark.connectors.postgres.setup_state import PublishedPart
from barnabas.spark.connectors.postgres.tables import ReadColumns, read_columns
from barnabas.spark.connectors.postgres.text_columns import convert
from barnabas.spark.connectors.postgres.types import ValuePolicy

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_OPS: Final = np.zeros(256, np.uint8)
_OPS[[pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE]] = [CREATE, UPDATE, DELETE]


class BatchContext(Struct):
    """What the batches of one read share. `last_commit_lsn` is that of the last transaction, and before the first one
    the position at which the read begins, so that it grows from one read to the next, too. `published` says what the
    publication has of tables.
    """

    database: str
    policy: ValuePolicy
    options: CaptureOptions
    last_commit_lsn: int
    published: Mapping[TableName, PublishedPart] = {}
    starts: int = 0
    """How often the query has started anew (`Checkpoint`)."""


def place_of(commit_lsn: int, order: int, starts: int = 0) -> str:
    """The place of a change (`ports.TableChange`): grows with the commits, and inside a transaction."""
    return f"{era(starts)}{commit_lsn:016X}-{order:010d}"


def captured_changes(batch: Batch, context: BatchContext) -> CapturedChanges:
    """The changes of a batch. Raises PostgresValueError if a value cannot be read in its type."""
    commits = np.array([one.commit_lsn for one in batch.transactions], np.int64)
    before = np.concatenate([[context.last_commit_lsn], commits[:-1]]) if len(commits) else commits
    transactions = _Transactions(
        before,
        np.array([one.xid for one in batch.transactions], np.int64),
        np.array([one.commit_time_us for one in batch.transactions], np.int64),
        pa.array([one.id for one in batch.transactions], pa.string()),
        pa.array([f"{era(context.starts)}{one.commit_lsn:016X}-" for one in batch.transactions], pa.string()),
    )
    if len(commits):
        context.last_commit_lsn = int(commits[-1])
    tables = tuple(_table_change(table, transactions, context) for table in batch.tables)
    if context.options.wants_truncates:
        tables += tuple(_truncate(one, transactions, context) for one in batch.truncates)
    if not context.options.events.transaction_metadata:
        return CapturedChanges(tables)
    changed = (
        ChangedTransaction(
            one.id,
            one.commit_time_us,
            tuple((f"{schema}.{table}", count) for (schema, table), count in one.event_counts),
        )
        for one in batch.transactions
        if one.event_count
    )
    return CapturedChanges(tables, tuple(changed))


class _Transactions(Struct):
    """Columns with one element for each transaction of a batch."""

    last_commit_lsns: Any
    xids: Any
    times_us: Any
    ids: Any
    place_starts: Any


def _table_change(table: TableChanges, transactions: _Transactions, context: BatchContext) -> TableChange:
    columns = read_columns(context.database, table.relation, table.types, table.key, context.policy, context.options)
    owner = table.transaction
    part = context.published.get(table.name)
    schema = columns.schema if part is None else structs.replace(columns.schema, unpublished=part.left_out)
    rows = table.rows
    unavailable = {
        index: rows.new.unchanged[place]
        for index, place in enumerate(columns.places)
        if rows.new.unchanged[place] is not None
    }
    changes = ChangeBatch(
        schema,
        _OPS[rows.tags],
        _structs(rows.old, columns, context.policy),
        _structs(rows.new, columns, context.policy),
        table.ordinal,
        transactions.times_us[owner],
        PostgresPositions(table.lsn.astype(np.int64), transactions.last_commit_lsns[owner], transactions.xids[owner]),
        table.key_changed,
        unavailable,
        transactions.ids.take(pa.array(owner)),
        table.total_order,
        table.table_order,
    )
    return TableChange(changes, _places(transactions, owner, table.total_order))


def _truncate(one: TruncatedTable, transactions: _Transactions, context: BatchContext) -> TableChange:
    owner = np.array([one.transaction], np.int64)
    total_order = np.array([one.total_order], np.int64)
    changes = ChangeBatch(
        TableSchema(context.database, one.relation.schema, one.relation.table, (), ()),
        np.array([TRUNCATE], np.uint8),
        None,
        None,
        np.array([one.ordinal], np.int64),
        transactions.times_us[owner],
        PostgresPositions(
            np.array([one.lsn], np.int64), transactions.last_commit_lsns[owner], transactions.xids[owner]
        ),
        transaction=transactions.ids.take(pa.array(owner)),
        total_order=total_order,
        table_order=np.array([one.table_order], np.int64),
    )
    return TableChange(changes, _places(transactions, owner, total_order))


def _places(transactions: _Transactions, owner: Any, total_order: Any) -> Any:
    orders = _pc.utf8_lpad(pa.array(total_order).cast(pa.string()), 10, "0")
    return _pc.binary_join_element_wise(transactions.place_starts.take(pa.array(owner)), orders, "")


def _structs(tuples: Tuples, columns: ReadColumns, policy: ValuePolicy) -> Any:
    """The tuples as a struct column, null where there is none; None if there is no tuple at all."""
    if not tuples.present.any():
        return None
    children = [
        convert(tuples.values[place], kind, policy, column.name).column
        for place, kind, column in zip(columns.places, columns.kinds, columns.schema.columns, strict=True)
    ]
    fields = [pa.field(column.name, column.type) for column in columns.schema.columns]
    mask = None if tuples.present.all() else pa.array(~tuples.present)
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
