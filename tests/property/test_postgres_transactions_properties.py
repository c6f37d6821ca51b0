"""Consecutive ranges of a slot against a model: each transaction is in one of them, in the same order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.connectors.postgres.messages import Begin, Column, Commit, Relation, ReplicaIdentity
from barnabas.spark.connectors.postgres.transactions import TransactionReader
from tests.pgoutput import delete, encode, insert, update

TABLES = {
    oid: Relation(
        oid, "s", f"t{oid}", ReplicaIdentity.DEFAULT, (Column("id", 20, -1, True), Column("v", 25, -1, False))
    )
    for oid in (1, 2, 3)
}
Change = tuple[int, str, int]
"""(table, operation, id): i insert, u update, k update that changes the key, d delete."""

transactions = st.lists(
    st.lists(st.tuples(st.sampled_from(sorted(TABLES)), st.sampled_from("iukd"), st.integers(0, 99)), max_size=6),
    max_size=6,
)


def row_message(change: Change) -> bytes:
    oid, operation, number = change
    row = [b"%d" % number, b"v"]
    match operation:
        case "i":
            return insert(oid, row)
        case "u":
            return update(oid, row)
        case "k":
            return update(oid, row, key=[b"%d" % (number + 1), None])
        case _:
            return delete(oid, key=[b"%d" % number, None])


def peek(log: list[list[Change]]) -> list[tuple[int, int, bytes]]:
    """The whole log. Transaction n has the commit record [100 n + 50, 100 n + 60); tables are described once."""
    rows, described = [], set()
    for index, changes in enumerate(log):
        xid, lsn = index + 1, index * 100
        rows.append((lsn, xid, encode(Begin(lsn + 50, 0, xid))))
        for change in changes:
            if change[0] not in described:
                described.add(change[0])
                rows.append((0, 0, encode(TABLES[change[0]])))
            rows.append((lsn, xid, row_message(change)))
        rows.append((lsn + 60, xid, encode(Commit(lsn + 50, lsn + 60, 0))))
    return rows


def expected(log: list[list[Change]]) -> list[tuple[Any, ...]]:
    """(xid, table, operation, id, total order, table order) of each change."""
    events = []
    for index, changes in enumerate(log):
        total, in_table = 1, dict.fromkeys(TABLES, 1)
        for oid, operation, number in changes:
            events.append((index + 1, f"t{oid}", operation, number, total, in_table[oid]))
            total += 1 + (operation == "k")
            in_table[oid] += 1 + (operation == "k")
    return events


def events_of(batch: Any) -> list[tuple[Any, ...]]:
    """The changes of a batch in their order, as `expected` has them."""
    events = []
    for table in batch.tables:
        ids, old_ids = table.rows.new.values[0].to_pylist(), table.rows.old.values[0].to_pylist()
        for index, tag in enumerate(bytes(table.rows.tags).decode()):
            operation = "k" if table.key_changed[index] else tag.lower()
            number = int(old_ids[index] if tag == "D" else ids[index])
            xid = batch.transactions[table.transaction[index]].xid
            orders = int(table.total_order[index]), int(table.table_order[index])
            events.append((int(table.ordinal[index]), (xid, table.relation.table, operation, number, *orders)))
    assert len({ordinal for ordinal, _ in events}) == len(events)
    return [event for _, event in sorted(events)]


@given(transactions, st.lists(st.integers(0, 700), max_size=4), st.integers(1, 9))
def test_consecutive_ranges_have_each_change_once_and_in_order(
    log: list[list[Change]], cuts: list[int], piece: int
) -> None:
    rows = peek(log)
    found, ended = [], []
    for start, end in pairwise([0, *sorted(cuts), 1000]):
        reader = TransactionReader(start, end)
        for low in range(0, len(rows), piece):
            reader.feed(rows[low : low + piece])
            batch = reader.take()
            found += events_of(batch)
            ended += batch.transactions
        reader.finish()
    assert found == expected(log)
    assert [one.xid for one in ended] == [index + 1 for index, changes in enumerate(log) if changes]
    for one in ended:
        changes = log[one.xid - 1]
        assert one.event_count == sum(1 + (operation == "k") for _, operation, _ in changes)
        assert one.event_count == sum(count for _, count in one.event_counts)
