"""Rows of snapshots in the text protocol, transactions as change batches, and the numbers and places of their rows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.property import mysql_encoder as enc

from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder
from barnabas.spark.connectors.mysql.binlog.transactions import TransactionAssembler
from barnabas.spark.connectors.mysql.changes import CapturedTables, ChangeCollector
from barnabas.spark.connectors.mysql.errors import BinlogError
from barnabas.spark.connectors.mysql.orders import number_events, place_text, place_texts
from barnabas.spark.connectors.mysql.positions import BinlogPosition
from barnabas.spark.connectors.mysql.text_rows import END, LONG, MALFORMED, MORE, scan, scan_long_row, take_long_row


def packet(payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + b"\x01" + payload


ROW = b"\x01a" + b"\xfb"


def test_rows_of_whole_packets_are_found_and_the_rest_is_left() -> None:
    data = packet(ROW) + packet(b"\x00\xfc\x02\x00bc")
    found = scan(data + packet(ROW)[:-1], 0, 2, 10)
    assert (found.count, found.end, found.reason) == (2, len(data), MORE)
    assert [cells.slices() for cells in found.cells] == [[b"a", b""], [None, b"bc"]]
    assert scan(data + packet(b"\xfe\x00\x00\x02\x00"), 0, 2, 10).reason == END
    assert scan(data, 0, 2, 1).count == 1


@pytest.mark.parametrize("payload", [b"", b"\x01a", b"\x05a\xfb", ROW + b"x", b"\xfe" + b"\xff" * 9])
def test_a_packet_that_is_no_row_is_found_out(payload: bytes) -> None:
    assert scan(packet(payload), 0, 2, 10).reason == MALFORMED


def test_a_row_of_several_packets_is_joined() -> None:
    text = b"x" * (1 << 24)
    payload = b"\xfb" + enc.packed(len(text)) + text
    cut = (1 << 24) - 1
    data = bytearray(packet(payload[:cut]) + packet(payload[cut:]))
    assert scan(bytes(data), 0, 2, 10).reason == LONG
    assert take_long_row(bytearray(data[:-1])) is None
    joined = take_long_row(data)
    assert joined == payload
    assert data == b""
    assert [cells.slices() for cells in scan_long_row(payload, 2).cells] == [[None], [text]]
    with pytest.raises(BinlogError, match="bytes are left"):
        scan_long_row(payload, 1)


def test_events_are_numbered_by_transaction_and_by_table() -> None:
    weights, tables, owners = np.array([1, 2, 1, 1]), np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1])
    orders = number_events(weights, tables, owners, 2, ("a", "b"))
    assert orders.total.tolist() == [1, 2, 4, 1]
    assert orders.in_table.tolist() == [1, 1, 2, 1]
    assert orders.counts == ((("a", 2), ("b", 2)), (("b", 1),))


def test_places_are_ordered_as_text_and_begin_with_the_place_of_the_snapshot() -> None:
    places = place_texts(np.array([9, 10]), np.array([4, 5]), np.array([0, 1]), np.array([2, 3])).to_pylist()
    assert places == sorted(places)
    assert place_text(9, 4) < places[0] < place_text(9, 5)


def test_places_after_a_failover_are_behind_all_before_it() -> None:
    rows = np.zeros(1, np.int64)
    places = [place_texts(rows + 900, rows + 4, rows, rows, failovers)[0].as_py() for failovers in (0, 1, 2, 10)]
    assert places == sorted(places)
    assert place_text(1, 4, 1) > places[0]


def test_a_truncate_is_a_change_in_its_place_if_it_is_wanted() -> None:
    decoder = BinlogDecoder("bin.000001")
    assembler = TransactionAssembler(BinlogPosition("bin.000001", 4))
    everything = CapturedTables(lambda name: name == "shop.t", lambda table, column: True, {})
    collectors = [ChangeCollector(everything, transaction_metadata=True, truncates=wanted) for wanted in (True, False)]
    row = enc.image([enc.int_cell(1)])
    events = [
        enc.format_description(),
        *(enc.gtid(1), enc.query("BEGIN"), enc.table_map([enc.INT]), enc.rows(30, 1, [row]), enc.xid(500)),
        *(enc.gtid(2), enc.query("TRUNCATE TABLE t", 700)),
        *(enc.gtid(3), enc.query("TRUNCATE other", 800)),
        *(enc.gtid(4), enc.query("BEGIN"), enc.table_map([enc.INT]), enc.rows(30, 1, [row]), enc.xid(900)),
    ]
    for raw in events:
        transaction = assembler.handle(decoder.decode(raw))
        if transaction is not None:
            for collector in collectors:
                collector.add(transaction)
    [rows, truncate] = (captured := collectors[0].take()).tables
    assert (bytes(rows.changes.op), bytes(truncate.changes.op)) == (b"cc", b"t")
    assert (rows.changes.ordinal.tolist(), truncate.changes.ordinal.tolist()) == ([0, 2], [1])
    assert (truncate.changes.before, truncate.changes.after, truncate.changes.table.columns) == (None, None, ())
    assert (truncate.changes.positions.pos.tolist(), truncate.changes.total_order.tolist()) == ([700], [1])
    assert sorted(rows.places.to_pylist() + truncate.places.to_pylist())[1] == truncate.places[0].as_py()
    assert [one.event_counts for one in captured.transactions] == [(("shop.t", 1),)] * 3
    assert [bytes(table.changes.op) for table in collectors[1].take().tables] == [b"cc"]


def test_a_collector_puts_kinds_of_changes_of_one_table_in_the_order_of_the_binlog() -> None:
    decoder = BinlogDecoder("bin.000001")
    assembler = TransactionAssembler(BinlogPosition("bin.000001", 4))
    everything = CapturedTables(lambda name: name == "shop.t", lambda table, column: True, {})
    collector = ChangeCollector(everything, transaction_metadata=True)

    def image(number: int) -> bytes:
        return enc.image([enc.int_cell(number)])

    events = [
        enc.format_description(),
        enc.gtid(1),
        enc.query("BEGIN"),
        enc.table_map([enc.INT]),
        enc.rows(30, 1, [image(1), image(2)]),
        enc.table_map([enc.INT]),
        enc.rows(31, 1, [image(1), image(3)]),
        enc.table_map([enc.INT]),
        enc.rows(32, 1, [image(2)]),
        enc.table_map([enc.INT]),
        enc.rows(30, 1, [image(4)]),
        enc.xid(900),
    ]
    for raw in events:
        transaction = assembler.handle(decoder.decode(raw))
        if transaction is not None:
            collector.add(transaction)
    captured = collector.take()
    [table] = captured.tables
    changes = table.changes
    assert bytes(changes.op) == b"ccudc"
    assert [row and row["id"] for row in changes.before.to_pylist()] == [None, None, 1, 2, None]
    assert [row and row["id"] for row in changes.after.to_pylist()] == [1, 2, 3, None, 4]
    assert changes.key_changed.tolist() == [False, False, True, False, False]
    assert changes.total_order.tolist() == [1, 2, 3, 5, 6]
    assert changes.ordinal.tolist() == [0, 1, 2, 3, 4]
    assert table.places.to_pylist() == sorted(table.places.to_pylist())
    assert captured.transactions[0].event_counts == (("shop.t", 6),)
    assert collector.take().tables == ()
