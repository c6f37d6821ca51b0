"""Chains of transforms: predicates, the order of records, records that fail, dead letters. What each transform does is
compared with Kafka Connect in tests/interop/test_interop_transforms.py."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.transforms.chain import compile_chain
from barnabas.spark.connectors.transforms.errors import RowFailure, TransformDataError
from barnabas.spark.connectors.transforms.letters import transform_letters
from barnabas.spark.connectors.transforms.records import HEADERS_TYPE, json_field
from barnabas.spark.records.dead_letters import TaskIdentity

VALUE = pa.field(
    "value",
    pa.struct([pa.field("id", pa.int32()), pa.field("price", pa.string())]),
    nullable=False,
    metadata={"connect.name": "shop.Order"},
)
PRICES: list[Any] = ["1", "x", None, "4", "y"]


def batch(values: list[Any] | None = None, field: Any = VALUE) -> Any:
    rows: list[Any] = [{"id": n, "price": price} for n, price in enumerate(PRICES)] if values is None else values
    count = len(rows)
    columns = {
        pa.field("key", pa.binary()): [b"%d" % n for n in range(count)],
        field: rows,
        pa.field("headers", HEADERS_TYPE): [
            [{"key": "n", "value": b"%d" % n}] if n % 2 else None for n in range(count)
        ],
        pa.field("topic", pa.string()): ["a" if n < 2 else "b" for n in range(count)],
        pa.field("partition", pa.int32()): [0] * count,
        pa.field("offset", pa.int64()): [100 + n for n in range(count)],
        pa.field("timestamp", pa.timestamp("us", "UTC")): [1_709_210_096_789_000] * count,
    }
    arrays = [pa.array(cells, one.type) for one, cells in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(columns)))


def apply(config: dict[str, str], records: Any, failures: list[RowFailure] | None = None) -> list[Any]:
    return compile_chain(config).apply(records, failures)


CAST = {"transforms": "toInt", "transforms.toInt.type": "Cast$Value", "transforms.toInt.spec": "price:int32"}


def test_records_that_fail_are_reported_and_the_others_go_on_in_their_order() -> None:
    failures: list[RowFailure] = []
    (found,) = apply(CAST, batch(), failures)
    assert found.column("value").to_pylist() == [{"id": 0, "price": 1}, {"id": 2, "price": None}, {"id": 3, "price": 4}]
    assert found.schema.names == batch().schema.names
    assert [(failure.row, failure.label, failure.class_name) for failure in failures] == [
        (1, "toInt", "Cast$Value"),
        (4, "toInt", "Cast$Value"),
    ]
    assert "'x' is no such number" in failures[0].message


def test_without_tolerance_the_first_record_that_fails_is_named() -> None:
    with pytest.raises(
        TransformDataError, match=r"transforms\.toInt cannot transform the record at offset 101 of a-0: "
    ):
        apply(CAST, batch())


def test_rows_of_failures_are_those_of_the_batch_also_behind_a_filter() -> None:
    config = {
        **CAST,
        "transforms": "drop,toInt",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "isA",
        "predicates": "isA",
        "predicates.isA.type": "TopicNameMatches",
        "predicates.isA.pattern": "[a]",
    }
    failures: list[RowFailure] = []
    (found,) = apply(config, batch(), failures)
    assert found.column("offset").to_pylist() == [102, 103]
    assert [failure.row for failure in failures] == [4]


def test_dead_letters_have_the_bytes_of_the_record_and_the_headers_of_connect() -> None:
    failures: list[RowFailure] = []
    apply(CAST, batch(), failures)
    letters = transform_letters(batch(), failures, TaskIdentity("orders-sink", "3"))
    assert letters.column("key").to_pylist() == [b"1", b"4"]
    first, second = (
        {each["key"]: each["value"].decode() for each in row} for row in letters.column("headers").to_pylist()
    )
    assert first.pop("__connect.errors.exception.message") in first.pop("__connect.errors.exception.stacktrace")
    assert first == {
        "n": "1",
        "__connect.errors.topic": "a",
        "__connect.errors.partition": "0",
        "__connect.errors.offset": "101",
        "__connect.errors.connector.name": "orders-sink",
        "__connect.errors.task.id": "3",
        "__connect.errors.stage": "TRANSFORMATION",
        "__connect.errors.class.name": "Cast$Value",
        "__connect.errors.exception.class.name": "barnabas.spark.connectors.transforms.errors.TransformDataError",
    }
    assert "n" not in second
    assert transform_letters(batch(), failures, None).column("headers").to_pylist()[1] is None


TOMBSTONES = {
    "transforms": "wrap",
    "transforms.wrap.type": "HoistField$Value",
    "transforms.wrap.field": "order",
    "transforms.wrap.predicate": "dead",
    "transforms.wrap.negate": "true",
    "predicates": "dead",
    "predicates.dead.type": "RecordIsTombstone",
}


def test_tombstones_that_a_predicate_leaves_out_stay_between_the_other_records_in_one_batch() -> None:
    values = [{"id": 0, "price": "1"}, None, {"id": 2, "price": "3"}, None]
    (found,) = apply(TOMBSTONES, batch(values))
    assert found.column("offset").to_pylist() == [100, 101, 102, 103]
    assert found.column("value").to_pylist() == [{"order": values[0]}, None, {"order": values[2]}, None]


def test_records_that_get_different_schemas_leave_as_runs_in_their_order() -> None:
    config = {
        "transforms": "wrap",
        "transforms.wrap.type": "HoistField$Value",
        "transforms.wrap.field": "order",
        "transforms.wrap.predicate": "marked",
        "predicates": "marked",
        "predicates.marked.type": "HasHeaderKey",
        "predicates.marked.name": "n",
    }
    found = apply(config, batch())
    assert [one.column("offset").to_pylist() for one in found] == [[100], [101], [102], [103], [104]]
    assert ["order" in one.column("value").to_pylist()[0] for one in found] == [False, True, False, True, False]


def test_predicate_halves_with_one_schema_become_one_batch_again() -> None:
    config = {
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "(.)",
        "transforms.route.replacement": "$1-marked",
        "transforms.route.predicate": "marked",
        "predicates": "marked",
        "predicates.marked.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.marked.name": "n",
    }
    (found,) = apply(config, batch())
    assert found.column("topic").to_pylist() == ["a", "a-marked", "b", "b-marked", "b"]
    assert found.column("offset").to_pylist() == [100, 101, 102, 103, 104]


def test_json_values_pass_through_a_chain_of_several_transforms() -> None:
    config = {
        "transforms": "flat,mask,add",
        "transforms.flat.type": "Flatten$Value",
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "card.number",
        "transforms.mask.replacement": "***",
        "transforms.add.type": "InsertField$Value",
        "transforms.add.offset.field": "at",
    }
    (found,) = apply(config, batch(['{"id":1,"card":{"number":"4711","ok":true}}'], json_field("value")))
    assert found.column("value").to_pylist() == ['{"id":1,"card.number":"***","card.ok":true,"at":100}']


def test_a_value_that_is_not_json_is_one_failure() -> None:
    config = {"transforms": "flat", "transforms.flat.type": "Flatten$Value"}
    failures: list[RowFailure] = []
    (found,) = apply(config, batch(['{"a":1}', "{broken", None, "[1]"], json_field("value")), failures)
    assert found.column("value").to_pylist() == ['{"a":1}', None]
    assert [failure.row for failure in failures] == [1, 3]


def test_keys_of_spark_in_lower_case_configure_the_same_chain() -> None:
    failures: list[RowFailure] = []
    (found,) = apply({key.lower(): text for key, text in CAST.items()}, batch(), failures)
    assert (found.num_rows, failures[0].label) == (3, "toInt")


def test_a_chain_without_transforms_gives_the_batch_as_it_is_and_nothing_for_no_rows() -> None:
    records = batch()
    assert compile_chain({"topics": "a"}).apply(records) == [records]
    assert compile_chain(CAST).apply(records.slice(0, 0)) == []
