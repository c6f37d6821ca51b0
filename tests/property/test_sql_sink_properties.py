"""Random changes of keys, applied by the planned statements on SQLite, against a model: whatever columns rows have, and
however the rows are divided among tasks and micro-batches."""

from __future__ import annotations

import sqlite3
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.connectors.option_rows import ConnectorOptions
from barnabas.spark.connectors.sinking.options import ROW_OPTIONS, RowOptions, parse_row_options
from barnabas.spark.connectors.sinking.ports import StagedPart, TableRows
from barnabas.spark.connectors.sinking.tables import TableDivider
from barnabas.spark.connectors.sql.connection_urls import DatabaseAddress
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.options import SqlSinkOptions
from barnabas.spark.connectors.sql.sinks.planning import StagedRowsPart, plan_changes
from barnabas.spark.connectors.sql.sinks.ports import ColumnKind, SqlTable, StageTable, TableColumn
from barnabas.spark.connectors.sql.sinks.statements import create_stage

LOST = "__debezium_unavailable_value"
NAMES = ("id", "a", "b")
COLUMNS = tuple(TableColumn(name, "TEXT", ColumnKind.TEXT) for name in (*NAMES, "other"))
TABLE = SqlTable(("t",), COLUMNS, (("id",),))
VALUES = st.one_of(st.none(), st.sampled_from(["x", "y", LOST]))
KEYS = st.sampled_from(["k1", "k2", "k3"])
CHANGES = st.one_of(
    st.tuples(KEYS, VALUES, VALUES, st.sampled_from("cu")), st.tuples(KEYS, st.none(), st.none(), st.just("d"))
)
Row = dict[str, str | None]


class RefusedError(Exception):
    """A row is new, and its source did not send one of its values."""


def row_options(mode: str) -> RowOptions:
    texts = {"dbtable": "t", "insert.mode": mode, "pk.fields": "id", "delete.enabled": "true"}
    return parse_row_options(ConnectorOptions(texts, ROW_OPTIONS), texts)


def model(state: dict[str, Row], changes: list[tuple[Any, ...]], mode: str) -> None:
    for key, a, b, op in changes:
        if op == "d":
            state.pop(key, None)
            continue
        if key not in state:
            if mode == "update":
                continue
            if LOST in (a, b):
                raise RefusedError(key)
            state[key] = {"a": None, "b": None, "other": "new"}
        state[key] |= {name: value for name, value in (("a", a), ("b", b)) if value != LOST}


class Database:
    """A table in SQLite, with stages beside it."""

    def __init__(self, mode: str) -> None:
        self.options = SqlSinkOptions(DatabaseAddress(Dialect.SQLITE, "memory"), row_options(mode))
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT, b TEXT, other TEXT DEFAULT 'new')")
        self._stages = 0

    def write(self, tasks: list[list[tuple[Any, ...]]], origins: list[str] | None = None) -> None:
        parts = []
        for task, changes in enumerate(tasks):
            divider = TableDivider(self.options.rows, task)
            for start in range(0, len(changes), 3):  # several batches in a task
                rows = list(zip(*changes[start : start + 3], strict=True))
                arrays = [pa.array(column, pa.string()) for column in rows]
                batch = pa.RecordBatch.from_arrays(arrays, [*NAMES, "__op"])
                origin = None if origins is None else frozenset([origins[task]])
                parts += [self._stage(task, each, origin) for each in divider.divide_columns(batch)]
        self.connection.commit()
        for step in plan_changes(self.options, TABLE, parts):
            found = self.connection.execute(step.statement.sql, step.statement.parameters).fetchall()
            if step.refusal and found:
                self.connection.rollback()
                raise RefusedError(found[0][0])

    def _stage(self, task: int, rows: TableRows, origins: frozenset[str] | None) -> StagedRowsPart:
        self._stages += 1
        names = tuple(rows.rows.schema.names)
        columns = tuple(TableColumn(f"c{index}", "TEXT", ColumnKind.TEXT) for index in range(len(names)))
        stage = StageTable(f"stage{self._stages}", names, columns)
        self.connection.execute(create_stage(Dialect.SQLITE, (stage.name,), stage))
        deleted = [False] * rows.rows.num_rows if rows.deleted is None else rows.deleted.to_pylist()
        lines = zip(
            rows.order.to_pylist(), deleted, [rows.step] * len(deleted), *rows.rows.to_pydict().values(), strict=True
        )
        marks = ",".join("?" * (3 + len(names)))
        self.connection.executemany(f"INSERT INTO {stage.name} VALUES ({marks})", lines)
        order = int(rows.order[0].as_py())
        counts = (len(deleted), sum(deleted), order)
        part = StagedPart("t", rows.rows.schema, rows.key, rows.step, task, *counts, "", origins, rows.unavailable)
        return StagedRowsPart(part, stage, (stage.name,))

    def state(self) -> dict[str, Row]:
        found = self.connection.execute("SELECT id, a, b, other FROM t").fetchall()
        return {key: {"a": a, "b": b, "other": other} for key, a, b, other in found}


def agree(
    database: Database,
    state: dict[str, Row],
    tasks: list[list[tuple[Any, ...]]],
    changes: list[tuple[Any, ...]],
    mode: str,
    origins: list[str] | None = None,
) -> None:
    """Write a micro-batch, which the model refuses as a whole or applies to `state`."""
    after = {key: dict(row) for key, row in state.items()}
    try:
        model(after, changes, mode)
    except RefusedError:
        with pytest.raises(RefusedError):
            database.write(tasks, origins)
    else:
        database.write(tasks, origins)
        state.clear()
        state.update(after)
    assert database.state() == state


@pytest.mark.parametrize("mode", ["upsert", "update"])
@settings(max_examples=150, deadline=None)
@given(batches=st.lists(st.lists(CHANGES, max_size=12), min_size=1, max_size=3))
def test_the_changes_of_each_key_are_applied_in_their_order(mode: str, batches: list[list[tuple[Any, ...]]]) -> None:
    database = Database(mode)
    database.connection.execute("INSERT INTO t (id, a, b, other) VALUES ('k1', 'old', 'old', 'old')")
    state: dict[str, Row] = {"k1": {"a": "old", "b": "old", "other": "old"}}
    for changes in batches:
        agree(database, state, [changes], changes, mode)


@settings(max_examples=100, deadline=None)
@given(changes=st.lists(CHANGES, max_size=16), cut=st.integers(0, 16))
def test_the_rows_of_several_tasks_are_applied_in_the_order_of_the_tasks(
    changes: list[tuple[Any, ...]], cut: int
) -> None:
    database = Database("upsert")
    agree(database, {}, [changes[:cut], changes[cut:]], changes, "upsert")


@settings(max_examples=150, deadline=None)
@given(tasks=st.lists(st.tuples(st.sampled_from("ab"), st.lists(CHANGES, max_size=6)), max_size=5))
def test_tasks_of_one_partition_of_a_topic_are_applied_in_their_order(
    tasks: list[tuple[str, list[tuple[Any, ...]]]],
) -> None:
    """Tasks of two partitions, which have keys of their own, are applied together."""
    work = [[(f"{origin}{key}", *rest) for key, *rest in changes] for origin, changes in tasks]
    database = Database("upsert")
    together = [change for changes in work for change in changes]
    agree(database, {}, work, together, "upsert", [origin for origin, _ in tasks])
