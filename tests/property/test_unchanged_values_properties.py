"""Large values that the database does not send because they did not change, through the capture into a lake's table.

The rows of a table change at random, and their keys, too; a micro-batch is read when the table has changed further. The
copy is the table, or the flow has stopped because a row is gone. Planted bugs are caught.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from barnabas.spark.connectors.capture import completing
from barnabas.spark.connectors.capture.completing import complete
from barnabas.spark.connectors.capture.options import UnavailableValues
from barnabas.spark.connectors.capture.ports import TableChange
from barnabas.spark.connectors.capture.rows_output import rows_of, rows_schema
from barnabas.spark.connectors.events.changes import ChangeBatch, ColumnSchema, NoPositions, TableSchema
from barnabas.spark.connectors.lake import changes as lake_changes
from barnabas.spark.connectors.lake.changes import KeyedRows, check_required, fold, nulls_of
from barnabas.spark.connectors.lake.errors import LakeError
from barnabas.spark.connectors.lake.iceberg_merge import kept_rows, upserted_rows
from barnabas.spark.connectors.option_rows import ConnectorOptions
from barnabas.spark.connectors.sinking import tables
from barnabas.spark.connectors.sinking.options import ROW_OPTIONS, RowOptions, parse_row_options
from barnabas.spark.connectors.sinking.tables import TableDivider

SEEDS = 40
BATCHES = 6
LIST = UnavailableValues.LIST
COLUMNS = (ColumnSchema("id", pa.int64(), False), ColumnSchema("n", pa.int64()), ColumnSchema("note", pa.string()))
TABLE = TableSchema("db", "public", "t", COLUMNS, (0,))
STRUCT = pa.struct([pa.field(column.name, column.type) for column in COLUMNS])
COPY = pa.schema(list(STRUCT))
Change = tuple[str, int | None, dict[str, Any] | None]
"""The operation, the old key if the server sends it, and the new row; its note is missing if it is not there."""


class Source:
    """A table with REPLICA IDENTITY DEFAULT, and the changes that are not read yet."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.rows: dict[int, dict[str, Any]] = {}
        self.log: list[Change] = []

    def change(self) -> None:
        rng = self.rng
        key, other = rng.randrange(6), rng.randrange(6)
        row = self.rows.get(key)
        note = rng.choice([None, f"note {rng.randrange(1000)}"])
        if row is None:
            self.rows[key] = {"id": key, "n": 0, "note": note}
            self.log.append(("c", None, dict(self.rows[key])))
            return
        kind = rng.choice(("n", "n", "note", "key", "key", "key and note", "delete"))
        if kind == "delete":
            del self.rows[key]
            self.log.append(("d", key, None))
            return
        if "key" in kind and other in self.rows:
            return  # the key is taken
        sent = dict(row, n=row["n"] + 1)
        if "note" in kind:
            sent["note"] = note
        elif row["note"] is not None:  # a null is always sent
            del sent["note"]
        if "key" in kind:
            del self.rows[key]
            sent["id"] = other
        self.rows[sent["id"]] = {**row, **sent}
        self.log.append(("u", key if "key" in kind else None, sent))

    def read(self, count: int) -> TableChange:
        changes, self.log = self.log[:count], self.log[count:]
        ops, old, new = (list(column) for column in zip(*changes, strict=True))
        numbers = np.arange(len(changes))
        batch = ChangeBatch(
            TABLE,
            np.frombuffer("".join(ops).encode(), np.uint8),
            pa.array([None if key is None else {"id": key, "n": None, "note": None} for key in old], STRUCT),
            pa.array([row and {"note": None, **row} for row in new], STRUCT),
            numbers,
            numbers,
            NoPositions(),
            np.array([op == "u" and key is not None for op, key in zip(ops, old, strict=True)]),
            {2: np.array([row is not None and "note" not in row for row in new])},
        )
        return TableChange(batch, pa.array([""] * len(changes)))

    def look_up(self, changes: ChangeBatch, columns: tuple[int, ...], keys: Any) -> Any:
        names = [COLUMNS[at].name for at in columns]
        return {key: tuple(self.rows[key[0]][name] for name in names) for key in keys if key[0] in self.rows}


def row_options() -> RowOptions:
    texts = {"dbtable": "t", "insert.mode": "upsert", "pk.fields": "id", "delete.enabled": "true"}
    return parse_row_options(ConnectorOptions(texts, ROW_OPTIONS), texts)


def write(copy: Any, rows: Any) -> Any:
    """The copy after a micro-batch. Raises LakeError."""
    parts = [
        KeyedRows(
            pa.Table.from_batches([one.rows]),
            pa.array([False] * one.rows.num_rows) if one.deleted is None else one.deleted,
            one.order,
            one.unavailable,
        )
        for one in TableDivider(row_options(), 0).divide_columns(rows)
    ]
    folded = fold(parts, ("id",), COPY)
    check_required(folded, nulls_of(copy, folded), "t")
    keys = pa.concat_tables([folded.upserts.select(["id"]), folded.deletes])
    kept, changed = kept_rows(copy, keys)
    return pa.concat_tables([kept, upserted_rows(folded, changed, COPY)])


def play(seed: int) -> bool:
    """Whether the flow has read all changes; else it has stopped."""
    rng = Random(seed)
    source, copy = Source(rng), pa.Table.from_pylist([], COPY)
    for batch in range(BATCHES):
        for _ in range(rng.randrange(1, 12)):
            source.change()
        while source.log and (batch == BATCHES - 1 or rng.random() < 0.7):
            read = complete(source.read(rng.randrange(1, 8)), LIST, source.look_up)
            try:
                copy = write(copy, rows_of(read, rows_schema(TABLE, LIST), LIST))
            except LakeError as error:
                assert "did not send its value of note" in str(error)
                return False
    found = {row["id"]: row for row in copy.to_pylist()}
    assert found == source.rows, f"seed {seed}"
    return True


def test_the_copy_is_the_table_or_the_flow_stops() -> None:
    played = [play(seed) for seed in range(SEEDS)]
    assert played.count(True) > SEEDS // 4
    assert False in played


def written_as_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink takes the null in place of a value that was not sent for the value."""
    monkeypatch.setattr(tables, "unsent_in_columns", lambda batch, placeholder: {})


def new_keys_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of a row with a new key are not read from the table, and the row is written without them."""
    monkeypatch.setattr(completing, "_creates", lambda changes: np.zeros(len(changes), np.bool_))
    monkeypatch.setitem(globals(), "check_required", lambda folded, rows, table: None)
    monkeypatch.setitem(globals(), "fold", partial(_without_requirement, lake_changes.fold))


def _without_requirement(real: Any, parts: list[KeyedRows], *rest: Any) -> Any:
    return real([KeyedRows(one.rows, one.deleted, one.order) for one in parts], *rest)


@pytest.mark.parametrize("plant", [written_as_null, new_keys_without])
def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(SEEDS):
            play(seed)
