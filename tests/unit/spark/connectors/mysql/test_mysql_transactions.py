"""Events to transactions: where a binlog may be cut, savepoints, rollbacks, DDL, and what is refused."""

from __future__ import annotations

import pytest
from tests.property import mysql_encoder as enc

from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder
from barnabas.spark.connectors.mysql.binlog.rows import RowDecoder
from barnabas.spark.connectors.mysql.binlog.statements import StatementKind, TableName
from barnabas.spark.connectors.mysql.binlog.transactions import (
    BinlogTransaction,
    RowChanges,
    SchemaChange,
    TransactionAssembler,
)
from barnabas.spark.connectors.mysql.errors import (
    BinlogError,
    BinlogLimitError,
    BinlogPurgedError,
    UnsupportedBinlogError,
)
from barnabas.spark.connectors.mysql.positions import BinlogPosition

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


class Reading:
    """A decoder and an assembler, fed with encoded events."""

    def __init__(self, version: str = enc.MYSQL, **options: int) -> None:
        self._decoder = BinlogDecoder("bin.000001")
        self.assembler = TransactionAssembler(BinlogPosition("bin.000001", 4), **options)
        self.feed(enc.format_description(version))

    def feed(self, *events: bytes) -> list[BinlogTransaction]:
        found = [self.assembler.handle(self._decoder.decode(event)) for event in events]
        return [transaction for transaction in found if transaction is not None]


def insert(*ids: int, kind: int = 30) -> list[bytes]:
    return [enc.table_map([enc.INT]), enc.rows(kind, 1, [enc.image([enc.int_cell(i)]) for i in ids])]


def ids(transaction: BinlogTransaction) -> list[int]:
    """The ids of all rows of a transaction."""
    runs = [change for change in transaction.changes if isinstance(change, RowChanges)]
    return [n for run in runs for n in RowDecoder(run.table).decode(run.events).after.column("id").to_pylist()]


def test_a_transaction_is_returned_at_its_end_and_moves_the_position() -> None:
    reading = Reading()
    assert reading.feed(enc.gtid(1), enc.query("BEGIN"), *insert(1, 2), *insert(3)) == []
    assert (reading.assembler.position.position, reading.assembler.in_transaction) == (4, True)
    [transaction] = reading.feed(enc.xid(900))
    assert (transaction.gtid, transaction.file, transaction.end) == (f"{UUID}:1", "bin.000001", 900)
    assert transaction.commit_us == enc.TIMESTAMP * 10**6
    assert ids(transaction) == [1, 2, 3]
    assert len(transaction.changes) == 1, "rows of one table are one run"
    assert reading.assembler.position == BinlogPosition("bin.000001", 900, f"{UUID}:1")


def test_mariadb_begins_a_transaction_with_its_gtid() -> None:
    reading = Reading(enc.MARIADB)
    [first] = reading.feed(enc.mariadb_gtid(5, 0), *insert(1, kind=23), enc.query("COMMIT", 700))
    [second] = reading.feed(enc.mariadb_gtid(6, 1), enc.query("TRUNCATE TABLE t", 800))
    assert (first.gtid, ids(first), second.gtid) == ("0-7-5", [1], "0-7-6")
    assert reading.assembler.position.gtids == "0-7-6"


def test_ddl_is_a_transaction_with_a_schema_change() -> None:
    [transaction] = Reading().feed(enc.gtid(1), enc.query("RENAME TABLE a TO x.b", 400))
    names = (TableName("shop", "a"),), (TableName("x", "b"),)
    assert transaction.changes == (SchemaChange(StatementKind.RENAME, *names, "shop", "RENAME TABLE a TO x.b"),)


def test_create_table_as_select_has_its_rows_in_the_same_transaction() -> None:
    reading = Reading(enc.MARIADB)
    [transaction] = reading.feed(
        enc.mariadb_gtid(1, 0x28), enc.query("CREATE TABLE t (id INT)"), *insert(1), enc.xid(9)
    )
    assert [type(change) for change in transaction.changes] == [SchemaChange, RowChanges]


def test_rows_that_were_rolled_back_are_dropped() -> None:
    reading = Reading()
    [transaction] = reading.feed(
        enc.query("BEGIN"),
        *insert(1),
        enc.query("SAVEPOINT `s1`"),
        *insert(2),
        enc.query("SAVEPOINT s2"),
        *insert(3),
        enc.query("ROLLBACK TO `S1`"),
        *insert(4),
        enc.xid(900),
    )
    assert ids(transaction) == [1, 4]
    [transaction] = reading.feed(enc.query("BEGIN"), *insert(5), enc.query("ROLLBACK", 950))
    assert (transaction.changes, transaction.end, transaction.row_bytes) == ((), 950, 0)
    [transaction] = reading.feed(
        enc.query("BEGIN"), *insert(6), enc.query("ROLLBACK TO SAVEPOINT unlogged"), *insert(7), enc.xid(990)
    )
    assert ids(transaction) == [7]


def test_a_transaction_that_a_crash_cut_off_is_forgotten() -> None:
    reading = Reading()
    reading.feed(enc.query("BEGIN"), *insert(1), enc.event(4, b"\x04" + bytes(7) + b"bin.000002"))
    [transaction] = reading.feed(enc.format_description(), enc.query("BEGIN"), *insert(2), enc.xid(300))
    assert (ids(transaction), transaction.file, transaction.end) == ([2], "bin.000002", 300)


def test_a_rotation_between_transactions_moves_the_position() -> None:
    reading = Reading()
    reading.feed(enc.event(4, b"\x04" + bytes(7) + b"bin.000002"))
    assert reading.assembler.position == BinlogPosition("bin.000002", 4)


def test_earlier_gtids_are_taken_from_the_binlog_if_none_are_known() -> None:
    reading = Reading()
    intervals = b"".join(n.to_bytes(8, "little") for n in (1, 1, 1, 6))
    reading.feed(enc.event(35, intervals[:8] + bytes(range(16)) + intervals[8:]))
    reading.feed(enc.gtid(6), enc.query("BEGIN"), enc.xid(900))
    assert reading.assembler.position.gtids == f"{UUID}:1-6"


@pytest.mark.parametrize("events", [[enc.xid()], insert(1), [enc.query("COMMIT")], [enc.query("SAVEPOINT s")]])
def test_reading_from_inside_a_transaction_is_an_error(events: list[bytes]) -> None:
    with pytest.raises(BinlogError, match="without the beginning"):
        Reading().feed(*events)


def test_missing_events_are_errors() -> None:
    with pytest.raises(BinlogError, match="before the one before it has ended"):
        Reading().feed(enc.gtid(1), enc.query("BEGIN"), enc.gtid(2))
    with pytest.raises(BinlogError, match="BEGIN inside a transaction"):
        Reading().feed(enc.query("BEGIN"), enc.query("BEGIN"))
    with pytest.raises(BinlogError, match="which no TABLE_MAP describes"):
        Reading().feed(enc.query("BEGIN"), insert(1)[1])


def test_what_cannot_be_captured_is_refused_with_a_remedy() -> None:
    with pytest.raises(UnsupportedBinlogError, match="SET GLOBAL binlog_format = 'ROW'"):
        Reading().feed(enc.query("BEGIN"), enc.query("INSERT INTO t VALUES (1)"))
    with pytest.raises(UnsupportedBinlogError, match="SET GLOBAL binlog_format = 'ROW'"):
        Reading().feed(enc.query("BEGIN"), enc.event(5, bytes(9)))
    with pytest.raises(UnsupportedBinlogError, match="ONE PHASE"):
        Reading().feed(
            enc.query("XA START X'31',X'',1"), *insert(1), enc.query("XA END X'31'"), enc.event(38, bytes(15))
        )
    with pytest.raises(BinlogPurgedError, match="new snapshot"):
        Reading().feed(enc.event(26, b"\x01\x00\x00"))
    with pytest.raises(BinlogLimitError, match=r"more than 20 bytes[\s\S]*in smaller transactions"):
        Reading(transaction_bytes_max=20).feed(enc.query("BEGIN"), *insert(1, 2, 3, 4, 5))


def test_xa_in_one_phase_is_an_ordinary_transaction() -> None:
    one_phase = enc.event(38, b"\x01" + bytes(14), 800)
    [transaction] = Reading().feed(enc.query("XA START X'31'"), *insert(1), enc.query("XA END X'31'"), one_phase)
    assert ids(transaction) == [1]
