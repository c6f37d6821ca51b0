"""Machine: transactions of a binlog -> row changes in columns.

Transactions are collected until `take` decodes all rows of one table and kind together: most transactions have a few
rows, and decoding costs as much for one row as for a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field, structs

from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.spark.connectors.capture.ports import CapturedChanges, TableChange
from barnabas.spark.connectors.events.changes import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    ChangeBatch,
    ChangedTransaction,
    MySqlPositions,
    TableSchema,
)
from barnabas.spark.connectors.mysql.binlog.codes import ChangeKind
from barnabas.spark.connectors.mysql.binlog.events import BinlogTable, RowsEvent
from barnabas.spark.connectors.mysql.binlog.rows import RowDecoder, check_described
from barnabas.spark.connectors.mysql.binlog.statements import StatementKind, TableName
from barnabas.spark.connectors.mysql.binlog.transactions import BinlogTransaction, RowChanges, SchemaChange
from barnabas.spark.connectors.mysql.columns import SYSTEM_DATABASES, captured_schema, is_sequence
from barnabas.spark.connectors.mysql.images import RowImages, build_images
from barnabas.spark.connectors.mysql.orders import EventOrders, number_events, place_texts
from barnabas.spark.connectors.mysql.positions import FilePosition

GROUP_BYTES_MAX: Final = 256 << 20
"""Rows of one table that become one batch, unless one event has more: Arrow's columns of texts end at 2 GiB."""

_OPS: Final = {ChangeKind.INSERT: CREATE, ChangeKind.UPDATE: UPDATE, ChangeKind.DELETE: DELETE}


class CapturedTables(Struct, frozen=True):
    """Which tables and columns are captured. The functions get `database.table`, and for columns the column's name.

    `keys` gives other keys than the primary keys, by `database.table`.
    """

    wants_table: Callable[[str], bool]
    wants_column: Callable[[str, str], bool]
    keys: Mapping[str, tuple[str, ...]]

    def has(self, database: str, table: str) -> bool:
        """Whether a table is captured. The tables of the server itself never are."""
        return database not in SYSTEM_DATABASES and self.wants_table(f"{database}.{table}")

    def schema(self, table: BinlogTable) -> tuple[TableSchema, tuple[int, ...]]:
        """The captured columns of a table, and their indexes. Raises UnsupportedBinlogError."""
        check_described(table)
        name = f"{table.database}.{table.name}"
        return captured_schema(table, lambda column: self.wants_column(name, column), self.keys.get(name, ()))


class _Run(Struct):
    """Rows events of one table, kind and set of columns.

    For each event: `places` is its number among the events since the last `take`, `numbers` that in its transaction,
    and `owners` that of its transaction.
    """

    events: list[RowsEvent] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)


class _Captured(Struct, frozen=True):
    """A captured table of the binlog: how its rows are decoded, and which of its columns are captured."""

    decoder: RowDecoder
    schema: TableSchema
    indexes: tuple[int, ...]


class _Group(Struct):
    """The rows events of one table that become one batch."""

    captured: _Captured
    runs: dict[tuple[ChangeKind, int | None, int | None], _Run] = field(default_factory=dict)
    size: int = 0


class _Rows(Struct, frozen=True):
    """The decoded rows of one run, one element of each array for each row.

    `rows` are the numbers in the event, `events` the numbers of the events in their transactions.
    """

    op: int
    images: RowImages
    ordinals: Any
    owners: Any
    events: Any
    rows: Any
    positions: Any


class _Truncate(Struct, frozen=True):
    """A table that was truncated: the number of the event since the last `take`, that in its transaction, and that of
    the transaction.
    """

    table: TableName
    place: int
    number: int
    owner: int

    @property
    def schema(self) -> TableSchema:
        """The table without its columns, which the binlog does not have."""
        return TableSchema(self.table.database, "", self.table.table, (), ())


class ChangeCollector:
    """Collects transactions, and gives their changes as `CapturedChanges`.

    `pending_bytes` is the size of the rows that `take` has not returned, and `zero_dates` counts the cells that became
    null because they hold no date. `failovers` is a part of the places (`orders.py`), the same one for all transactions
    that `take` returns at once.
    """

    def __init__(self, tables: CapturedTables, *, transaction_metadata: bool = False, truncates: bool = False) -> None:
        self.zero_dates = 0
        self.failovers = 0
        self._tables = tables
        self._metadata = transaction_metadata
        self._wants_truncates = truncates
        self._captured: dict[int, tuple[BinlogTable, _Captured | None]] = {}
        self._ordinal = 0
        self._clear()

    def _clear(self) -> None:
        self.pending_bytes = 0
        self._transactions: list[BinlogTransaction] = []
        self._groups: list[_Group] = []
        self._open: dict[int, _Group] = {}
        self._truncates: list[_Truncate] = []
        self._events = 0

    def add(self, transaction: BinlogTransaction) -> None:
        """Take a transaction. Changes of tables that are not captured, and DDL but wanted truncates, are left out.

        Raises UnsupportedBinlogError if a captured table has a column that cannot be read.
        """
        number = 0
        before = self._events
        for change in transaction.changes:
            if isinstance(change, SchemaChange):
                if change.kind is StatementKind.TRUNCATE and self._wants_truncates:
                    number = self._add_truncates(change, number)
                continue
            captured = self._describe(change.table)
            for event in change.events:
                if captured is not None and event.data:
                    self._add_event(captured, change, event, number)
                number += 1
        if self._events > before:
            self._transactions.append(transaction)

    def _describe(self, table: BinlogTable) -> _Captured | None:
        """How a table is captured, or None. A decoder returns the same object for a table until the table changes."""
        found = self._captured.get(id(table))
        if found is not None:
            return found[1]
        captured = None
        if self._tables.has(table.database, table.name) and not is_sequence(table):
            schema, indexes = self._tables.schema(table)
            captured = _Captured(RowDecoder(table, indexes), schema, indexes)
        if len(self._captured) > 10_000:
            self._captured.clear()
        self._captured[id(table)] = table, captured  # the table is kept, so that no other one gets its id
        return captured

    def _add_event(self, captured: _Captured, change: RowChanges, event: RowsEvent, number: int) -> None:
        group = self._open.get(id(captured))
        if group is None or group.size > GROUP_BYTES_MAX:
            group = self._open[id(captured)] = _Group(captured)
            self._groups.append(group)
        run = group.runs.setdefault((change.kind, event.before, event.after), _Run())
        run.events.append(event)
        run.places.append(self._events)
        run.numbers.append(number)
        run.owners.append(len(self._transactions))
        group.size += len(event.data)
        self.pending_bytes += len(event.data)
        self._events += 1

    def _add_truncates(self, change: SchemaChange, number: int) -> int:
        for table in change.tables:
            if self._tables.has(table.database, table.table):
                self._truncates.append(_Truncate(table, self._events, number, len(self._transactions)))
                self.pending_bytes += len(change.statement)
                self._events += 1
                number += 1
        return number

    def take(self) -> CapturedChanges:
        """The changes of all transactions since the last call. Raises BinlogError if a row is malformed."""
        transactions, groups, events, truncates = self._transactions, self._groups, self._events, self._truncates
        self._clear()
        decoded = [
            [(kind, run, group.captured.decoder.decode(run.events)) for (kind, _, _), run in group.runs.items()]
            for group in groups
        ]
        counts = np.zeros(events, np.int64)
        for parts in decoded:
            for _, run, rows in parts:
                counts[run.places] = rows.counts
                self.zero_dates += rows.zero_dates
        counts[[one.place for one in truncates]] = 1
        firsts = np.cumsum(counts) - counts + self._ordinal
        found = [
            [
                _rows(kind, run, build_images(rows, group.captured.schema, group.captured.indexes), rows.counts, firsts)
                for kind, run, rows in parts
            ]
            for group, parts in zip(groups, decoded, strict=True)
        ]
        schemas = [group.captured.schema for group in groups]
        marks = [(one, int(firsts[one.place])) for one in truncates]
        orders = self._orders(schemas, found, marks, len(transactions), int(counts.sum())) if self._metadata else None
        tables = tuple(
            _table_change(schema, parts, transactions, orders, self._ordinal, self.failovers)
            for schema, parts in zip(schemas, found, strict=True)
        )
        tables += tuple(_truncated(one, at, transactions, orders, self._ordinal, self.failovers) for one, at in marks)
        self._ordinal += int(counts.sum())
        return CapturedChanges(tables, () if orders is None else _changed(transactions, orders))

    def _orders(
        self,
        schemas: Sequence[TableSchema],
        found: Sequence[Sequence[_Rows]],
        truncates: Sequence[tuple[_Truncate, int]],
        transactions: int,
        total: int,
    ) -> EventOrders:
        """The numbers of all events in their transactions. Each truncate comes with its ordinal."""
        names = {schema.id: None for schema in (*schemas, *(one.schema for one, _ in truncates))}
        numbers = {name: i for i, name in enumerate(names)}
        weights, tables, owners = (np.zeros(total, np.int64) for _ in range(3))
        for schema, parts in zip(schemas, found, strict=True):
            for part in parts:
                at = part.ordinals - self._ordinal
                weights[at] = 1 + part.images.key_changed
                tables[at] = numbers[schema.id]
                owners[at] = part.owners
        for one, ordinal in truncates:
            at = ordinal - self._ordinal
            weights[at], tables[at], owners[at] = 1, numbers[one.schema.id], one.owner
        return number_events(weights, tables, owners, transactions, tuple(names))


def _rows(kind: ChangeKind, run: _Run, images: RowImages, counts: Any, firsts: Any) -> _Rows:
    """Where each row of a run is. `counts` are the rows of its events, `firsts` the ordinals of all events."""
    rows = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return _Rows(
        _OPS[kind],
        images,
        np.repeat(firsts[run.places], counts) + rows,
        np.repeat(np.array(run.owners, np.int64), counts),
        np.repeat(np.array(run.numbers, np.int64), counts),
        rows,
        np.repeat(np.array([event.begin for event in run.events], np.int64), counts),
    )


def transaction_id(transaction: BinlogTransaction) -> str:
    """The identity of a transaction in events, as Debezium writes it."""
    return transaction.gtid or f"file={transaction.file},pos={transaction.end}"


def _table_change(
    schema: TableSchema,
    parts: Sequence[_Rows],
    transactions: Sequence[BinlogTransaction],
    orders: EventOrders | None,
    first_ordinal: int,
    failovers: int,
) -> TableChange:
    """One batch from the rows of inserts, updates and deletes, in the order of the binlog."""
    ordinals = np.concatenate([part.ordinals for part in parts])
    sorting = None if len(parts) == 1 else np.argsort(ordinals)

    def joined(arrays: Sequence[Any]) -> Any:
        whole = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
        return whole if sorting is None else whole[sorting]

    def joined_images(images: Sequence[Any]) -> Any:
        present = next((image for image in images if image is not None), None)
        if present is None:
            return None
        filled = [
            pa.nulls(len(part.ordinals), present.type) if image is None else image
            for image, part in zip(images, parts, strict=True)
        ]
        whole = pa.concat_arrays(filled) if len(filled) > 1 else filled[0]
        return whole if sorting is None else whole.take(pa.array(sorting))

    ordinals = joined([part.ordinals for part in parts])
    owners = joined([part.owners for part in parts])
    rows = joined([part.rows for part in parts])
    events = joined([part.events for part in parts])
    absent = {i for part in parts for i in part.images.unavailable}
    owned = pa.array(owners)
    files = [FilePosition.of(one.file, one.end) for one in transactions]
    names = pa.array([one.file for one in transactions], pa.string())
    gtids = pa.array([one.gtid or None for one in transactions], pa.string())
    batch = ChangeBatch(
        schema,
        joined([np.full(len(part.ordinals), part.op, np.uint8) for part in parts]),
        joined_images([part.images.before for part in parts]),
        joined_images([part.images.after for part in parts]),
        ordinals,
        np.array([one.commit_us for one in transactions], np.int64)[owners],
        MySqlPositions(
            np.array([one.server_id for one in transactions], np.int64)[owners],
            gtids.take(owned),
            names.take(owned),
            joined([part.positions for part in parts]),
            rows,
        ),
        joined([part.images.key_changed for part in parts]),
        {i: joined([np.full(len(part.ordinals), i in part.images.unavailable) for part in parts]) for i in absent},
    )
    places = place_texts(
        np.array([file.number for file in files], np.int64)[owners],
        np.array([file.position for file in files], np.int64)[owners],
        events,
        rows,
        failovers,
    )
    return TableChange(_with_orders(batch, transactions, orders, owned, first_ordinal), places)


def _truncated(
    one: _Truncate,
    ordinal: int,
    transactions: Sequence[BinlogTransaction],
    orders: EventOrders | None,
    first_ordinal: int,
    failovers: int,
) -> TableChange:
    transaction = transactions[one.owner]
    file = FilePosition.of(transaction.file, transaction.end)
    zeros = np.zeros(1, np.int64)
    batch = ChangeBatch(
        one.schema,
        np.array([TRUNCATE], np.uint8),
        None,
        None,
        np.array([ordinal], np.int64),
        np.array([transaction.commit_us], np.int64),
        MySqlPositions(
            np.array([transaction.server_id], np.int64),
            pa.array([transaction.gtid or None], pa.string()),
            pa.array([transaction.file], pa.string()),
            np.array([transaction.end], np.int64),
            zeros,
        ),
    )
    places = place_texts(zeros + file.number, zeros + file.position, zeros + one.number, zeros, failovers)
    owned = pa.array([one.owner])
    return TableChange(_with_orders(batch, transactions, orders, owned, first_ordinal), places)


def _with_orders(
    batch: ChangeBatch,
    transactions: Sequence[BinlogTransaction],
    orders: EventOrders | None,
    owned: Any,
    first_ordinal: int,
) -> ChangeBatch:
    if orders is None:
        return batch
    ids = pa.array([transaction_id(one) for one in transactions], pa.string())
    at = batch.ordinal - first_ordinal
    return structs.replace(
        batch, transaction=ids.take(owned), total_order=orders.total[at], table_order=orders.in_table[at]
    )


def _changed(transactions: Sequence[BinlogTransaction], orders: EventOrders) -> tuple[ChangedTransaction, ...]:
    return tuple(
        ChangedTransaction(transaction_id(one), one.commit_us, counts)
        for one, counts in zip(transactions, orders.counts, strict=True)
    )
