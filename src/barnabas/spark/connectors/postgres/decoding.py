"""Machine: decodes the row messages of committed transactions, and gives each change its place in them.

Every step works on arrays with one element for each change of the batch, so its cost does not depend on how many
transactions or tables the changes belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct, field, structs

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.postgres.changes import (
    Batch,
    EmittedMessage,
    TableChanges,
    TableName,
    Transaction,
    TruncatedTable,
)
from barnabas.spark.connectors.postgres.collected import (
    Committed,
    OpenTransaction,
    RowMessages,
    TableVersion,
    TruncateEvent,
)
from barnabas.spark.connectors.postgres.messages import Commit, Relation
from barnabas.spark.connectors.postgres.pgoutput import UPDATE, Rows, Tuples, decode_rows

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

DECODED_BYTES_MAX: Final = 256 << 20
"""Row messages that are decoded at once. A message alone can be 1 GiB."""


class Collected(Struct):
    """The messages of committed transactions whose ordinals begin at `first_ordinal`."""

    first_ordinal: int
    size: int = 0
    commits: list[Committed] = field(default_factory=list)
    rows: list[RowMessages] = field(default_factory=list)
    truncates: list[TruncateEvent] = field(default_factory=list)
    messages: list[EmittedMessage] = field(default_factory=list)
    by_table: dict[int, RowMessages] = field(default_factory=dict)

    def add(self, transaction: OpenTransaction, commit: Commit) -> None:
        """Take over a transaction. One without changes and messages is dropped: before PostgreSQL 15 there are such."""
        if not (transaction.rows or transaction.truncates or transaction.messages):
            return
        index = len(self.commits)
        for one in transaction.rows:
            self.size += sum(map(len, one.messages))
            lists = self.by_table.get(one.table.relation.oid)
            if lists is None or lists.table is not one.table:
                self.by_table[one.table.relation.oid] = one
                self.rows.append(one)
            else:
                lists.lsns.extend(one.lsns)
                lists.messages.extend(one.messages)
                lists.ordinals.extend(one.ordinals)
        self.truncates.extend(transaction.truncates)
        self.messages.extend(EmittedMessage(message, ordinal, index) for ordinal, message in transaction.messages)
        self.commits.append(Committed(transaction.begin, commit, transaction.first_ordinal, transaction.origin))


def build_batch(collected: Collected, until: int, *, count_truncates: bool) -> Batch:
    """Decode everything that was collected; `until` is the ordinal after the last change.

    Raises PgoutputError if a row message is malformed.
    """
    base = collected.first_ordinal
    firsts = np.array([one.first_ordinal - base for one in collected.commits], np.int64)
    parts = [part for lists in collected.rows for part in _decoded(lists, base)]
    names: dict[TableName, int] = {}
    weights = np.zeros(until - base, np.int64)
    tables = np.zeros(until - base, np.int64)
    for part in parts:
        weights[part.places] = 1 + part.key_changed
        tables[part.places] = _number(names, part.table.relation.schema, part.table.relation.table)
    for event in collected.truncates:
        weights[event.ordinal - base] = int(count_truncates)
        tables[event.ordinal - base] = _number(names, event.relation.schema, event.relation.table)
    owner = np.searchsorted(firsts, np.arange(until - base), side="right") - 1
    total, in_table, counts = _orders(weights, tables, owner, len(firsts))
    return Batch(
        _transactions(collected, weights, owner, counts, list(names)),
        tuple(
            TableChanges(
                part.table.relation,
                part.table.types,
                part.table.key,
                part.rows,
                part.lsns,
                part.places + base,
                owner[part.places],
                part.key_changed,
                total[part.places],
                in_table[part.places],
            )
            for part in sorted(parts, key=lambda part: int(part.places[0]))
        ),
        tuple(
            TruncatedTable(
                event.relation,
                event.lsn,
                event.ordinal,
                int(owner[event.ordinal - base]),
                int(total[event.ordinal - base]) if count_truncates else 0,
                int(in_table[event.ordinal - base]) if count_truncates else 0,
                event.truncate.cascade,
                event.truncate.restart_identity,
            )
            for event in collected.truncates
        ),
        tuple(collected.messages),
    )


class _Part(Struct):
    table: TableVersion
    rows: Rows
    lsns: Any
    places: Any
    key_changed: Any


def _number(names: dict[TableName, int], schema: str, table: str) -> int:
    return names.setdefault((schema, table), len(names))


def _decoded(lists: RowMessages, base: int) -> Iterator[_Part]:
    columns = len(lists.table.relation.columns)
    for low, high in _pieces(lists.messages):
        lsns = lists.lsns[low:high]
        rows = decode_rows(columns, lsns, lists.messages[low:high])
        key_changed = _key_changed(rows, lists.table.key)
        places = np.array(lists.ordinals[low:high], np.int64) - base
        filled = structs.replace(rows, new=_fill(rows, lists.table.relation))
        yield _Part(lists.table, filled, np.array(lsns, np.uint64), places, key_changed)


def _pieces(messages: list[bytes]) -> Iterator[tuple[int, int]]:
    low = size = 0
    for high, message in enumerate(messages):
        if size + len(message) > DECODED_BYTES_MAX and high > low:
            yield low, high
            low, size = high, 0
        size += len(message)
    if low < len(messages):
        yield low, len(messages)


def _key_changed(rows: Rows, key: tuple[int, ...]) -> Any:
    """True for each update whose old and new key differ. Both are sent exactly if that is possible."""
    changed = np.zeros(len(rows), np.bool_)
    both = rows.old.present & (rows.tags == UPDATE)
    if not both.any():
        return changed
    for column in key:
        old, new = rows.old.values[column], rows.new.values[column]
        differ = _pc.fill_null(_pc.not_equal(old, new), False).to_numpy(zero_copy_only=False)
        differ = differ | (_nulls(old) != _nulls(new))
        unchanged = rows.new.unchanged[column]
        changed |= both & (differ if unchanged is None else differ & ~unchanged)
    return changed


def _nulls(column: Any) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)


def _fill(rows: Rows, relation: Relation) -> Tuples:
    """The new tuples, with unchanged values taken from the old tuples as far as these have the column.

    An unchanged value is never null, so an old tuple with null was not sent whole: that of a partition whose replica
    identity is not that of its table.
    """
    values, masks = list(rows.new.values), list(rows.new.unchanged)
    for column, mask in enumerate(masks):
        if mask is None:
            continue
        known = mask & (rows.old.present if relation.columns[column].in_key else rows.old_full)
        known &= ~_nulls(rows.old.values[column])
        if known.any():
            values[column] = _pc.if_else(pa.array(known), rows.old.values[column], values[column])
            left = mask & ~known
            masks[column] = left if left.any() else None
    return Tuples(tuple(values), tuple(masks), rows.new.present)


def _orders(weights: Any, tables: Any, owner: Any, transactions: int) -> tuple[Any, Any, dict[int, list[Any]]]:
    """(order in the transaction, order in the transaction and table, transaction -> [(table, events)])."""
    size = len(weights)
    counts: dict[int, list[Any]] = {index: [] for index in range(transactions)}
    if not size:
        return weights, weights, counts
    total = _restarted(weights, np.diff(owner, prepend=-1) != 0)
    sorting = np.lexsort((tables, owner))
    by_owner, by_table = owner[sorting], tables[sorting]
    starts = (np.diff(by_owner, prepend=-1) != 0) | (np.diff(by_table, prepend=-1) != 0)
    in_table = np.empty(size, np.int64)
    in_table[sorting] = _restarted(weights[sorting], starts)
    places = np.flatnonzero(starts)
    sums = np.add.reduceat(weights[sorting], places)
    for index, table, events in zip(by_owner[places].tolist(), by_table[places].tolist(), sums.tolist(), strict=True):
        if events:
            counts[index].append((table, events))
    return total, in_table, counts


def _restarted(weights: Any, starts: Any) -> Any:
    """For each element the sum of the weights before it since the last start, plus 1."""
    before = np.cumsum(weights) - weights
    last_start = np.maximum.accumulate(np.where(starts, np.arange(len(weights)), 0))
    return before - before[last_start] + 1


def _transactions(
    collected: Collected, weights: Any, owner: Any, counts: dict[int, list[Any]], names: list[TableName]
) -> tuple[Transaction, ...]:
    events = np.bincount(owner, weights, len(collected.commits)).astype(np.int64).tolist() if len(owner) else None
    return tuple(
        Transaction(
            one.begin.xid,
            one.commit.commit_lsn,
            one.commit.end_lsn,
            one.commit.commit_time_us,
            one.origin,
            0 if events is None else events[index],
            tuple(sorted((names[table], number) for table, number in counts[index])),
        )
        for index, one in enumerate(collected.commits)
    )
