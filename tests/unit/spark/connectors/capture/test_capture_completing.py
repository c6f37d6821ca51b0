"""Values that the database did not send, read from its table: the rows that are looked up, and those that are gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from barnabas.spark.connectors.capture.completing import complete
from barnabas.spark.connectors.capture.errors import CaptureError
from barnabas.spark.connectors.capture.options import UnavailableValues
from barnabas.spark.connectors.capture.ports import TableChange
from barnabas.spark.connectors.events.changes import ChangeBatch, ColumnSchema, NoPositions, TableSchema

FAIL, NULL, LIST, RESELECT = UnavailableValues
TABLE = TableSchema(
    "db", "public", "t", (ColumnSchema("id", pa.int64(), False), ColumnSchema("tags", pa.list_(pa.string()))), (0,)
)


def change(*moves: tuple[str, int | None, int | None]) -> TableChange:
    """(op, old key, new key); the large values of all new rows are missing."""

    def side(keys: list[int | None]) -> Any:
        kind = pa.struct([pa.field(column.name, column.type) for column in TABLE.columns])
        return pa.array([None if key is None else {"id": key, "tags": None} for key in keys], kind)

    ops, old, new = (list(column) for column in zip(*moves, strict=True))
    numbers = np.arange(len(moves))
    moved = np.array([op == "u" and before is not None for op, before, _ in moves])
    batch = ChangeBatch(
        TABLE,
        np.frombuffer("".join(ops).encode(), np.uint8),
        side(old),
        side(new),
        numbers,
        numbers,
        NoPositions(),
        moved,
        {1: np.array([key is not None for key in new])},
    )
    return TableChange(batch, pa.array([""] * len(moves)))


class Table:
    """The table as it is now. `asked` has the keys that were looked up."""

    def __init__(self, **rows: Any) -> None:
        self.rows = {(int(name[1:]),): (tags,) for name, tags in rows.items()}
        self.asked: list[Any] = []

    def __call__(self, changes: ChangeBatch, columns: tuple[int, ...], keys: Any) -> Any:
        assert columns == (1,)
        self.asked += keys
        return {key: self.rows[key] for key in keys if key in self.rows}


def completed(one: TableChange, mode: UnavailableValues, table: Table) -> tuple[list[Any], list[int]]:
    """The values of the new rows, and the places of those that are still missing."""
    changes = complete(one, mode, table).changes
    left = changes.unavailable.get(1, np.zeros(len(changes), np.bool_))
    return [row and row["tags"] for row in changes.after.to_pylist()], np.flatnonzero(left).tolist()


def test_creates_are_completed_and_updates_are_not() -> None:
    table = Table(k2=["a", None], k3=None)
    one = change(("u", 1, 2), ("u", None, 5), ("c", None, 3))
    assert completed(one, FAIL, table) == ([["a", None], None, None], [1])
    assert sorted(table.asked) == [(2,), (3,)]


def test_reselect_completes_updates_too_and_a_lost_one_stays_missing() -> None:
    one = change(("u", None, 5), ("u", None, 6))
    assert completed(one, RESELECT, Table(k5=["e"])) == ([["e"], None], [1])


def test_a_row_that_moves_on_is_looked_for_under_its_last_key() -> None:
    """Another row may have the key that it had."""
    one = change(("u", 1, 2), ("u", 2, 3), ("u", 9, 2))
    table = Table(k2=["other"], k3=["own"])
    assert completed(one, FAIL, table) == ([["own"], ["own"], ["other"]], [])


@pytest.mark.parametrize("mode", [NULL, RESELECT])
def test_a_row_that_is_gone_has_null(mode: UnavailableValues) -> None:
    one = change(("u", 1, 2), ("d", 2, None), ("u", 7, 8))
    assert completed(one, mode, Table(k2=["the next row with this key"])) == ([None, None, None], [])


def test_a_row_that_is_gone_stops_the_query_or_is_named() -> None:
    one = change(("u", 1, 2), ("d", 2, None))
    with pytest.raises(CaptureError, match=r"public\.t has the new key id=2\. Its large value of tags did not change"):
        completed(one, FAIL, Table())
    assert completed(one, LIST, Table()) == ([None, None], [0])


def test_a_database_whose_tables_are_not_read_sends_whole_rows_or_stops() -> None:
    one = change(("u", 1, 2), ("u", None, 5))
    with pytest.raises(CaptureError, match=r"values of tags, .* binlog_row_image=FULL in every session"):
        complete(one, FAIL, None)
    assert complete(one, NULL, None).changes.unavailable[1].tolist() == [False, True]
