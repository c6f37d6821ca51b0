"""A position of one server is found in the binlogs of another one by its GTIDs, or refused."""

from __future__ import annotations

import pytest

from barnabas.spark.connectors.mysql.binlog.transactions import BinlogTransaction
from barnabas.spark.connectors.mysql.errors import PositionError, ServerBehindError
from barnabas.spark.connectors.mysql.positions import BinlogPosition
from barnabas.spark.connectors.mysql.relocation import PlaceSearch, begins_before, check_executed, parse_gtids

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def old(gtids: str) -> BinlogPosition:
    return BinlogPosition("bin.000009", 900, gtids, "old")


def search(gtids: str, before: str, transactions: list[str]) -> PlaceSearch:
    """A search in a binlog with these transactions, which end at 100, 200, ..."""
    begin = BinlogPosition("bin.000002", 4, before, "new")
    found = PlaceSearch(old(gtids), begin, mariadb=":" not in gtids)
    for number, gtid in enumerate(transactions, 1):
        if found.place is not None:
            break
        transaction = BinlogTransaction(gtid, "bin.000002", 100 * number, 1, 0, (), 0)
        found.handle(transaction, BinlogPosition("bin.000002", 100 * number, "", "new"))
    return found


@pytest.mark.parametrize(
    ("gtids", "before", "transactions", "place"),
    [
        ("0-1-7", "0-1-5", ["0-1-6", "0-1-7", "0-2-8"], 200),
        ("0-1-7", "0-1-7", ["0-2-8"], 4),
        ("0-1-7", "", ["0-1-6", "0-1-7"], 200),
        ("0-1-7,3-1-2", "0-1-6,3-1-2", ["0-1-7", "3-1-3"], 100),
        (f"{A}:1-7", f"{A}:1-5", [f"{A}:6", f"{A}:7", f"{A}:8"], 200),
        (f"{A}:1-5:7", f"{A}:1-5", [f"{A}:7", f"{A}:6"], 100),
        (f"{A}:1-7", f"{A}:1-7", [], 4),
    ],
)
def test_the_place_is_behind_the_last_transaction_that_was_read(
    gtids: str, before: str, transactions: list[str], place: int
) -> None:
    assert search(gtids, before, transactions).finish().position == place


@pytest.mark.parametrize(
    ("gtids", "before", "transactions", "message"),
    [
        ("0-1-7", "0-1-5", ["0-1-6"], "end before"),
        ("0-1-7", "0-1-5", ["0-1-6", "0-2-7", "0-2-8"], "diverged"),
        ("0-1-7", "0-2-7", [], "diverged"),
        ("0-1-7,3-1-2", "0-1-6,3-1-1", ["0-1-7", "3-1-3", "3-1-2"], "no place"),
        ("0-1-7,3-1-2", "0-1-6", ["0-1-7", "4-1-1"], "no place"),
        (f"{A}:1-7", f"{A}:1-5", [f"{A}:6", f"{A}:8", f"{A}:7"], "no place"),
        (f"{A}:1-7", f"{A}:1-5", [f"{A}:6", ""], "no place"),
    ],
)
def test_another_history_is_refused(gtids: str, before: str, transactions: list[str], message: str) -> None:
    with pytest.raises(PositionError, match=message):
        search(gtids, before, transactions).finish()


def test_the_search_begins_in_a_binlog_that_the_position_covers_so_far() -> None:
    assert begins_before(old("0-1-7"), parse_gtids("0-1-7", mariadb=True))
    assert begins_before(old("0-1-7"), parse_gtids("", mariadb=True))
    assert not begins_before(old("0-1-7"), parse_gtids("0-1-8", mariadb=True))
    assert not begins_before(old("0-1-7"), parse_gtids("0-1-7,3-1-1", mariadb=True))
    assert not begins_before(old(f"{A}:1-7"), parse_gtids(f"{A}:1-8", mariadb=False))


def test_a_server_that_lacks_transactions_is_refused() -> None:
    check_executed(old("0-1-7"), parse_gtids("0-1-7,1-1-1", mariadb=True), "server 2")
    with pytest.raises(
        ServerBehindError, match=r"up to 0-1-7, and the server has 0-1-6\. If it is a replica that lags"
    ) as behind:
        check_executed(old("0-1-7"), parse_gtids("0-1-6", mariadb=True), "server 2")
    assert "failOnDataLoss" not in str(behind.value)  # which changes nothing: the query waits for the replica
    with pytest.raises(PositionError, match=f"up to {A}:7"):
        check_executed(old(f"{A}:1-7"), parse_gtids(f"{A}:1-6", mariadb=False), "server 2")
