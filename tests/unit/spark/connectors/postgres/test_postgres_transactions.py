"""The reader of a peek: which transactions it keeps, their order, keys, unchanged values, and schema changes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.pgoutput import UNCHANGED, delete, encode, insert, update

from barnabas.spark.connectors.postgres import decoding
from barnabas.spark.connectors.postgres.errors import ChangeOrderError
from barnabas.spark.connectors.postgres.messages import (
    Begin,
    Column,
    Commit,
    LogicalMessage,
    Origin,
    PgoutputMessage,
    Relation,
    ReplicaIdentity,
    Truncate,
    TypeName,
)
from barnabas.spark.connectors.postgres.setup_state import PrimaryKey
from barnabas.spark.connectors.postgres.transactions import ReaderOptions, TransactionReader

ORDERS = Relation(
    1, "public", "orders", ReplicaIdentity.DEFAULT, (Column("id", 20, -1, True), Column("note", 25, -1, False))
)
ITEMS = Relation(2, "public", "items", ReplicaIdentity.FULL, (Column("id", 20, -1, True), Column("note", 25, -1, True)))
Peek = list[tuple[int, int, bytes]]


def transaction(xid: int, lsn: int, *messages: bytes | PgoutputMessage) -> Peek:
    """A transaction whose commit record is [lsn, lsn + 8)."""
    datas = [one if isinstance(one, bytes) else encode(one) for one in messages]
    whole = [encode(Begin(lsn, 5, xid)), *datas, encode(Commit(lsn, lsn + 8, 5))]
    return [(lsn - 50 + index, xid, data) for index, data in enumerate(whole)]


def read(peek: Peek, start: int = 0, end: int = 1 << 40, **options: Any) -> Any:
    reader = TransactionReader(start, end, ReaderOptions(**options))
    reader.feed(peek)
    return reader.finish()


def new_rows(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.rows.new.values), strict=True))


def test_a_transaction_is_kept_exactly_if_its_commit_record_starts_in_the_range() -> None:
    peek = [
        row
        for number in range(1, 6)
        for row in transaction(number, number * 100, ORDERS, insert(1, [b"%d" % number, None]))
    ]
    for start, end, kept in [
        (0, 501, [1, 2, 3, 4, 5]),
        (0, 500, [1, 2, 3, 4]),
        (100, 400, [1, 2, 3]),
        (101, 401, [2, 3, 4]),
        (500, 600, [5]),
        (501, 600, []),
        (104, 104, []),
        # The server has flushed a page that ends inside the commit record [400, 408), and is advanced to there.
        (104, 404, [2, 3, 4]),
        (404, 600, [5]),
    ]:
        batch = read(peek, start, end)
        assert [one.xid for one in batch.transactions] == kept
        rows = [row for table in batch.tables for row in new_rows(table)]
        assert rows == [(b"%d" % number, None) for number in kept]
        assert [one for table in batch.tables for one in table.ordinal.tolist()] == list(range(len(kept)))


def test_changes_have_their_order_in_the_transaction_and_in_the_table() -> None:
    peek = transaction(
        7,
        100,
        ORDERS,
        ITEMS,
        Origin(5, "east"),
        insert(1, [b"1", b"a"]),
        insert(2, [b"1", b"x"]),
        update(1, [b"2", b"a"], key=[b"1", None]),
        insert(2, [b"2", b"x"]),
        insert(1, [b"3", b"a"]),
    )
    peek += transaction(8, 200, insert(1, [b"4", b"a"]))
    batch = read(peek)
    orders, items = batch.tables
    assert orders.name == ("public", "orders")
    assert orders.transaction.tolist() == [0, 0, 0, 1]
    assert orders.ordinal.tolist() == [0, 2, 4, 5]
    assert orders.key_changed.tolist() == [False, True, False, False]
    assert orders.total_order.tolist() == [1, 3, 6, 1]
    assert orders.table_order.tolist() == [1, 2, 4, 1]
    assert items.total_order.tolist() == [2, 5]
    assert items.table_order.tolist() == [1, 2]
    first, second = batch.transactions
    assert (first.id, first.event_count, first.origin) == ("7:100", 6, Origin(5, "east"))
    assert first.event_counts == ((("public", "items"), 2), (("public", "orders"), 4))
    assert (second.id, second.event_count, second.event_counts) == ("8:200", 1, ((("public", "orders"), 1),))


def test_the_key_is_that_of_the_replica_identity_or_of_the_configuration() -> None:
    peek = transaction(1, 100, ORDERS, ITEMS, insert(1, [b"1", b"a"]), insert(2, [b"1", b"x"]))
    assert [table.key for table in read(peek).tables] == [(0,), ()]
    batch = read(peek, key_columns={("public", "items"): ("note", "id")})
    assert [table.key for table in batch.tables] == [(0,), (1, 0)]
    with pytest.raises(ChangeOrderError, match="has no column nope"):
        read(peek, key_columns={("public", "items"): ("nope",)})
    with pytest.raises(ChangeOrderError, match=r'run ALTER TABLE "public"\."orders" REPLICA IDENTITY FULL'):
        read(peek, key_columns={("public", "orders"): ("id", "note")})


def test_a_key_that_is_sent_but_equal_has_not_changed() -> None:
    peek = transaction(1, 100, ORDERS, update(1, [b"1", b"b"], key=[b"1", None]), update(1, [b"1", b"b"]))
    assert read(peek).tables[0].key_changed.tolist() == [False, False]


def test_an_unchanged_key_value_is_filled_from_the_old_key() -> None:
    peek = transaction(1, 100, ORDERS, update(1, [UNCHANGED, UNCHANGED], key=[b"1", None]))
    (table,) = read(peek).tables
    assert table.key_changed.tolist() == [False]
    assert new_rows(table) == [(b"1", None)]
    assert table.rows.new.unchanged[0] is None
    assert table.rows.new.unchanged[1].tolist() == [True]


def test_an_unchanged_value_is_filled_from_the_full_old_row() -> None:
    peek = transaction(
        1,
        100,
        ITEMS,
        update(2, [b"1", UNCHANGED], old=[b"1", b"long"]),
        update(2, [b"1", b"new"], old=[b"1", b"long"]),
    )
    (table,) = read(peek).tables
    assert new_rows(table) == [(b"1", b"long"), (b"1", b"new")]
    assert table.rows.new.unchanged == (None, None)


def test_a_key_of_the_configuration_that_changes_counts_as_two_events() -> None:
    peek = transaction(1, 100, ITEMS, update(2, [b"1", b"b"], old=[b"2", b"b"]), delete(2, old=[b"1", b"b"]))
    (table,) = read(peek, key_columns={("public", "items"): ("id",)}).tables
    assert table.key_changed.tolist() == [True, False]
    assert table.total_order.tolist() == [1, 3]


def test_a_changed_schema_starts_another_group_of_changes() -> None:
    wider = Relation(1, "public", "orders", ReplicaIdentity.DEFAULT, (*ORDERS.columns, Column("x", 23, -1, False)))
    peek = transaction(1, 100, ORDERS, insert(1, [b"1", b"a"]))
    peek += transaction(2, 200, ORDERS, insert(1, [b"2", b"a"]), wider, insert(1, [b"3", b"a", b"1"]))
    peek += transaction(3, 300, insert(1, [b"4", b"a", b"1"]))
    first, second = read(peek).tables
    assert (first.relation, new_rows(first)) == (ORDERS, [(b"1", b"a"), (b"2", b"a")])
    assert (second.relation, new_rows(second)) == (wider, [(b"3", b"a", b"1"), (b"4", b"a", b"1")])
    assert second.table_order.tolist() == [2, 1]


def test_a_renamed_type_starts_another_group_of_changes() -> None:
    table = Relation(1, "public", "t", ReplicaIdentity.NOTHING, (Column("m", 20000, -1, False),))
    peek = transaction(1, 100, TypeName(20000, "public", "mood"), table, insert(1, [b"ok"]))
    peek += transaction(2, 200, TypeName(20000, "public", "feeling"), table, insert(1, [b"ok"]))
    assert [one.types[20000].name for one in read(peek).tables] == ["mood", "feeling"]


def test_truncates_are_counted_only_if_that_is_wanted() -> None:
    peek = transaction(1, 100, ORDERS, ITEMS, insert(1, [b"1", None]), Truncate((1, 2), True, False))
    batch = read(peek)
    assert [(one.relation.table, one.ordinal, one.total_order) for one in batch.truncates] == [
        ("orders", 1, 0),
        ("items", 2, 0),
    ]
    assert batch.transactions[0].event_count == 1
    batch = read(peek, count_truncates=True)
    assert [(one.total_order, one.table_order) for one in batch.truncates] == [(2, 2), (3, 1)]
    assert batch.transactions[0].event_counts == ((("public", "items"), 1), (("public", "orders"), 2))


def test_messages_are_kept_with_their_transaction_or_by_their_own_position() -> None:
    inside = LogicalMessage(True, 90, "p", b"in")
    outside = [LogicalMessage(False, lsn, "p", b"out") for lsn in (149, 150, 249, 250)]
    peek = transaction(1, 100, inside)
    peek += [(one.lsn, 0, encode(one)) for one in outside]
    batch = read(peek, 0, 1000)
    assert [(one.message, one.transaction) for one in batch.messages] == [
        (inside, 0),
        *((one, None) for one in outside),
    ]
    batch = read(peek, 150, 250)
    assert [one.message.lsn for one in batch.messages] == [150, 249]
    assert batch.transactions == ()


def test_a_transaction_without_changes_is_dropped() -> None:
    assert read(transaction(1, 100)).transactions == ()


def test_pieces_of_a_peek_give_the_same_changes_as_the_whole() -> None:
    peek: Peek = []
    for number in range(1, 9):
        rows = [insert(1 + (number + index) % 2, [b"%d" % index, None]) for index in range(number)]
        peek += transaction(number, number * 100, *((ORDERS, ITEMS) if number == 1 else ()), *rows)
    whole = read(peek, 108, 708)
    reader = TransactionReader(108, 708)
    batches = []
    for row in peek:
        reader.feed([row])
        batches.append(reader.take())
    batches.append(reader.finish())
    assert [one for batch in batches for one in batch.transactions] == list(whole.transactions)
    for name in ("orders", "items"):
        parts = [table for batch in batches for table in batch.tables if table.relation.table == name]
        (expected,) = (table for table in whole.tables if table.relation.table == name)
        assert [row for part in parts for row in new_rows(part)] == new_rows(expected)
        for column in ("lsn", "ordinal", "total_order", "table_order"):
            values = [value for part in parts for value in getattr(part, column).tolist()]
            assert values == getattr(expected, column).tolist()


def test_many_rows_are_decoded_in_pieces_with_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [insert(1, [b"%d" % number, b"x" * number]) for number in range(9)]
    peek = transaction(1, 100, ORDERS, *rows)
    (whole,) = read(peek).tables
    monkeypatch.setattr(decoding, "DECODED_BYTES_MAX", 2 * len(rows[0]))
    parts = read(peek).tables
    assert len(parts) > 3
    assert [row for part in parts for row in new_rows(part)] == new_rows(whole)
    assert [order for part in parts for order in part.total_order.tolist()] == list(range(1, 10))


def test_pending_bytes_are_those_of_kept_transactions_until_they_are_taken() -> None:
    row = insert(1, [b"1", None])
    reader = TransactionReader(200, 400)
    for number, expected in ((1, 0), (2, len(row)), (3, 3 * len(row)), (4, 3 * len(row))):
        reader.feed(transaction(number, number * 100, ORDERS, *[row] * min(number - 1, 2)))
        assert reader.pending_bytes == expected
    reader.take()
    assert reader.pending_bytes == 0


BEGIN = (50, 1, encode(Begin(100, 0, 1)))
COMMIT = (51, 1, encode(Commit(100, 108, 0)))


@pytest.mark.parametrize(
    ("peek", "problem"),
    [
        ([(1, 1, insert(1, [b"1", None]))], "outside of a transaction"),
        ([BEGIN, (1, 1, insert(9, [b"1", None]))], "the oid 9, which no message describes"),
        ([COMMIT], "a commit at LSN 0/33 is outside of a transaction"),
        ([BEGIN, BEGIN], "before transaction 1 has ended"),
        ([(50, 2, BEGIN[2])], "in a row of transaction 2"),
        ([BEGIN, (51, 1, encode(Commit(101, 108, 0)))], "announced its commit at 0/64"),
        ([BEGIN, COMMIT, BEGIN, COMMIT], "not after 0/6C"),
        ([BEGIN], "the peek ends inside transaction 1"),
        ([BEGIN, (51, 1, encode(Truncate((9,), False, False)))], "the truncate at LSN 0/33"),
        ([BEGIN, (51, 1, encode(LogicalMessage(False, 51, "", b"")))], "is not transactional, but inside"),
        ([(51, 1, encode(LogicalMessage(True, 51, "", b"")))], "outside of a transaction"),
        (
            [(1, 1, encode(Relation(1, "s", "t", ReplicaIdentity.FULL, (Column("c", 20000, -1, False),))))],
            "with the type 20000, which no message describes",
        ),
    ],
)
def test_messages_in_an_impossible_order_are_refused(peek: Peek, problem: str) -> None:
    with pytest.raises(ChangeOrderError) as caught:
        read(peek)
    assert problem in str(caught.value)


def test_changes_of_tables_that_are_not_captured_are_left_out() -> None:
    """A publication can have other tables: those of another query, or all."""
    other = structs.replace(ITEMS, columns=(Column("id", 99_999, -1, True),))  # even with an unknown type
    renamed = structs.replace(ORDERS, table="old_orders")
    peek = [
        *transaction(1, 100, ORDERS, other, insert(1, [b"1", None]), insert(2, [b"7"]), insert(1, [b"2", None])),
        *transaction(2, 200, insert(2, [b"8"]), encode(Truncate((1, 2), False, False))),
        *transaction(3, 300, renamed, insert(1, [b"3", None])),
    ]
    batch = read(peek, wants=lambda schema, table: (schema, table) == ("public", "orders"))
    assert [(table.relation.table, new_rows(table)) for table in batch.tables] == [
        ("orders", [(b"1", None), (b"2", None)])
    ]
    assert [one.relation.table for one in batch.truncates] == ["orders"]
    assert [(one.xid, one.event_count) for one in batch.transactions] == [(1, 2), (2, 0)]


def test_a_primary_key_that_was_renamed_after_the_changes_is_found_by_its_place() -> None:
    peek = transaction(1, 100, ITEMS, insert(2, [b"1", b"a"]))
    for columns, places, key in [
        (("id", "note"), (0,), (0,)),
        (("item_id", "note"), (0,), (0,)),
        (("note", "id"), (1,), (0,)),
        (("id", "remark"), (1,), (1,)),
    ]:
        (table,) = read(peek, primary_keys={("public", "items"): PrimaryKey(columns, places)}).tables
        assert table.key == key
    later = {("public", "items"): PrimaryKey(("id", "note", "code"), (2,))}
    with pytest.raises(ChangeOrderError, match=r"column code of the primary key.*message\.key\.columns=public\.items"):
        read(peek, primary_keys=later)
    assert read(peek, 200, primary_keys=later).tables == ()  # those changes were read before


def test_an_unchanged_value_that_is_null_in_the_old_row_was_not_sent() -> None:
    """A partition with DEFAULT logs keys only, and its changes come as those of its table, which has FULL."""
    peek = transaction(1, 100, ITEMS, update(2, [b"2", UNCHANGED], old=[b"1", None]))
    (table,) = read(peek, primary_keys={("public", "items"): PrimaryKey(("id", "note"), (0,))}).tables
    assert table.rows.new.unchanged[1].tolist() == [True]
