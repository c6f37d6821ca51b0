"""Changes as rows of the captured table: deletes, changed keys, values that were not sent, other columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from barnabas.spark.connectors.capture.errors import CaptureError, TableChangedError
from barnabas.spark.connectors.capture.options import (
    CaptureOptions,
    Operation,
    UnavailableValues,
    parse_capture_options,
)
from barnabas.spark.connectors.capture.ports import TableChange
from barnabas.spark.connectors.capture.rows_output import rows_ddl, rows_of, rows_schema
from barnabas.spark.connectors.capture.skipping import without_operations, without_unchanged
from barnabas.spark.connectors.events.changes import ChangeBatch, ColumnSchema, PostgresPositions, TableSchema
from barnabas.spark.errors import OptionError

TABLE = TableSchema(
    "shop",
    "public",
    "orders",
    (ColumnSchema("id", pa.int64(), False), ColumnSchema("note", pa.string()), ColumnSchema("at", pa.time64("us"))),
    (0,),
)
FAIL, NULL, LIST = UnavailableValues.FAIL, UnavailableValues.NULL, UnavailableValues.LIST


def rows(*values: tuple[Any, ...] | None) -> Any:
    fields = [pa.field(column.name, column.type) for column in TABLE.columns]
    names = [column.name for column in TABLE.columns]
    return pa.array([None if one is None else dict(zip(names, one, strict=True)) for one in values], pa.struct(fields))


def change(op: str, before: Any, after: Any, **more: Any) -> TableChange:
    size = len(op)
    numbers = np.arange(size, dtype=np.int64)
    batch = ChangeBatch(
        TABLE,
        np.frombuffer(op.encode(), np.uint8),
        before,
        after,
        numbers,
        numbers * 1_000_000,
        PostgresPositions(numbers, numbers, numbers),
        **more,
    )
    return TableChange(batch, pa.array([f"p{number}" for number in range(size)]))


def as_rows(one: TableChange, unavailable: UnavailableValues = FAIL) -> list[tuple[Any, ...]]:
    batch = rows_of(one, rows_schema(TABLE, unavailable), unavailable)
    return [tuple(row.values()) for row in batch.to_pylist()]


def test_each_change_is_a_row() -> None:
    one = change("cud", rows(None, None, (1, None, None)), rows((1, "a", None), (1, "b", None), None))
    assert as_rows(one) == [
        (1, "a", None, "c", False, 0, "p0"),
        (1, "b", None, "u", False, 1000, "p1"),
        (1, None, None, "d", True, 2000, "p2"),
    ]


def test_a_changed_key_is_a_delete_and_a_create() -> None:
    one = change(
        "uu",
        rows((1, None, None), None),
        rows((2, "b", None), (3, "c", None)),
        key_changed=np.array([True, False]),
    )
    assert as_rows(one) == [
        (1, None, None, "d", True, 0, "p0"),
        (2, "b", None, "c", False, 0, "p0"),
        (3, "c", None, "u", False, 1000, "p1"),
    ]


def test_a_snapshot_has_rows_without_an_old_side() -> None:
    assert as_rows(change("r", None, rows((1, "a", None)))) == [(1, "a", None, "r", False, 0, "p0")]


def test_a_value_that_was_not_sent_stops_the_query_with_the_statement_to_run() -> None:
    one = change("u", None, rows((1, None, None)), unavailable={1: np.array([True])})
    with pytest.raises(CaptureError, match=r"note.*ALTER TABLE public\.orders REPLICA IDENTITY FULL"):
        as_rows(one)
    assert as_rows(one, NULL) == [(1, None, None, "u", False, 0, "p0")]
    assert as_rows(one, LIST) == [(1, None, None, "u", False, 0, "p0", ["note"])]


def test_a_column_that_the_query_does_not_have_stops_it() -> None:
    schema = rows_schema(TABLE, FAIL)
    fewer = schema.remove(schema.get_field_index("note"))
    with pytest.raises(TableChangedError, match=r"column note.*column\.exclude\.list=public\.orders\.note"):
        rows_of(change("c", None, rows((1, "a", None))), fewer, FAIL)


def test_a_column_that_the_change_does_not_have_is_null() -> None:
    more = rows_schema(TABLE, FAIL).insert(1, pa.field("new", pa.int32()))
    batch = rows_of(change("c", None, rows((1, "a", None))), more, FAIL)
    assert batch.column("new").to_pylist() == [None]


def test_a_wider_type_of_the_query_is_used_and_a_narrower_one_is_refused() -> None:
    schema = rows_schema(TABLE, FAIL)
    wider = schema.set(0, pa.field("id", pa.decimal128(20, 0)))
    assert rows_of(change("c", None, rows((1, "a", None))), wider, FAIL).column("id").type == pa.decimal128(20, 0)
    narrower = schema.set(0, pa.field("id", pa.int8()))
    with pytest.raises(TableChangedError, match="restart the query"):
        rows_of(change("c", None, rows((1000, "a", None))), narrower, FAIL)


def test_the_ddl_names_all_columns() -> None:
    assert rows_ddl(TABLE, LIST) == (
        "`id` bigint, `note` string, `at` bigint, `__op` string, `__deleted` boolean, `__source_ts_ms` bigint,"
        " `__position` string, `__unavailable` array<string>"
    )


def test_a_column_with_a_name_of_ours_is_refused() -> None:
    table = TableSchema("shop", "public", "orders", (ColumnSchema("__op", pa.string()),), ())
    with pytest.raises(OptionError, match="column __op"):
        rows_ddl(table, FAIL)


def test_skipped_operations_are_left_out() -> None:
    one = change("cud", rows(None, None, (1, None, None)), rows((1, "a", None), (1, "b", None), None))
    left = without_operations(one, {Operation.UPDATE, Operation.DELETE})
    assert as_rows(left) == [(1, "a", None, "c", False, 0, "p0")]
    assert left.changes.positions.lsn.tolist() == [0]


def test_truncates_are_skipped_unless_another_list_is_given() -> None:
    def parsed(**more: str) -> CaptureOptions:
        texts = {"stagingLocation": "s", "topic.prefix": "p"} | {name.replace("_", "."): more[name] for name in more}
        return parse_capture_options(texts, (), {}, connector="postgresql", version="1")

    assert not parsed().wants_truncates
    assert parsed(skipped_operations="none").wants_truncates
    assert parsed(skipped_operations="c,u").skipped == {Operation.CREATE, Operation.UPDATE}
    with pytest.raises(OptionError, match="must have t: there is no row for a truncate"):
        parsed(output="rows", skipped_operations="u")


def test_updates_that_change_nothing_are_left_out() -> None:
    old = rows((1, "a", None), (2, None, None), (3, "c", None), None, (5, "e", None), (6, "f", None), None)
    new = rows((1, "a", None), (2, None, None), (3, "d", None), (4, "x", None), None, (6, None, None), (7, "g", None))
    found = without_unchanged(change("uuuudu" + "c", old, new))
    assert [row[0] for row in as_rows(found)] == [3, 4, 5, 6, 7]


def test_updates_of_unknown_values_and_of_keys_stay() -> None:
    same = rows((1, "a", None), (2, "b", None))
    missing = {1: np.array([True, False])}
    assert len(without_unchanged(change("uu", same, same, unavailable=missing)).changes) == 1
    assert len(without_unchanged(change("uu", same, same, key_changed=np.array([True, True]))).changes) == 2
    assert len(without_unchanged(change("uu", None, same)).changes) == 2


def test_nested_values_are_compared() -> None:
    kind = pa.struct([pa.field("tags", pa.list_(pa.string()))])
    column = ColumnSchema("tags", pa.list_(pa.string()))
    one = change(
        "uuu", pa.array([{"tags": ["a"]}] * 3, kind), pa.array([{"tags": t} for t in (["a"], ["b"], None)], kind)
    )
    table = structs.replace(TABLE, columns=(column,), key=())
    found = without_unchanged(structs.replace(one, changes=structs.replace(one.changes, table=table)))
    assert found.changes.ordinal.tolist() == [1, 2]
