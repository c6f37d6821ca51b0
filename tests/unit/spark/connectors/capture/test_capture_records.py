"""Changes as records for a topic: converters, transforms, the order of several tables, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from barnabas.spark.connectors.capture import records_output
from barnabas.spark.connectors.capture.errors import CaptureError
from barnabas.spark.connectors.capture.options import CaptureOptions, parse_capture_options
from barnabas.spark.connectors.capture.ports import CapturedChanges, TableChange
from barnabas.spark.connectors.capture.records_output import RecordsOutput, check_records_output
from barnabas.spark.connectors.converters.errors import ConverterConfigError
from barnabas.spark.connectors.events.changes import (
    CREATE,
    ChangeBatch,
    ChangedTransaction,
    ColumnSchema,
    PostgresPositions,
    TableSchema,
)
from barnabas.spark.connectors.transforms.errors import TransformConfigError, TransformError
from barnabas.spark.errors import OptionError

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
FLAT = {"transforms": "flat", "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState"}


def options(**more: str) -> CaptureOptions:
    texts = {"stagingLocation": "/tmp/s", "topic.prefix": "shop", **PLAIN, **more}
    return parse_capture_options(texts, (), {}, connector="postgresql", version="1")


def inserts(table: str, ids: list[int], ordinals: list[int]) -> TableChange:
    numbers = np.array(ordinals, np.int64)
    schema = TableSchema("db", "public", table, (ColumnSchema("id", pa.int64(), False),), (0,))
    after = pa.StructArray.from_arrays([pa.array(ids, pa.int64())], names=["id"])
    changes = ChangeBatch(
        schema,
        np.full(len(ids), CREATE, np.uint8),
        None,
        after,
        numbers,
        numbers,
        PostgresPositions(numbers, numbers, numbers),
    )
    return TableChange(changes, pa.array([""] * len(ids)))


def records(captured: CapturedChanges, **more: str) -> list[tuple[str, Any, Any]]:
    batches = RecordsOutput(options(**more)).records(captured)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["topic"], json.loads(row["key"]), json.loads(row["value"])) for row in rows]


BOTH = CapturedChanges((inserts("a", [1, 2], [0, 3]), inserts("b", [3, 4], [1, 2])))


def test_the_records_of_several_tables_are_in_the_order_of_their_changes() -> None:
    assert [(topic, key["id"]) for topic, key, _ in records(BOTH)] == [
        ("shop.public.a", 1),
        ("shop.public.b", 3),
        ("shop.public.b", 4),
        ("shop.public.a", 2),
    ]


def test_transforms_change_the_records_before_they_are_bytes() -> None:
    route = {
        "transforms": "flat,Route",
        "transforms.Route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.Route.regex": r"shop\.public\.(.*)",
        "transforms.Route.replacement": "$1",
    }
    assert records(BOTH, **(FLAT | route)) == [
        ("a", {"id": 1}, {"id": 1}),
        ("b", {"id": 3}, {"id": 3}),
        ("b", {"id": 4}, {"id": 4}),
        ("a", {"id": 2}, {"id": 2}),
    ]


def test_fields_of_the_envelope_are_added_to_flat_records() -> None:
    more = {"transforms.flat.add.fields": "op,source.lsn", "transforms.flat.delete.handling.mode": "rewrite"}
    _, _, value = records(BOTH, **(FLAT | more))[0]
    assert value == {"id": 1, "__deleted": "false", "__op": "c", "__source_lsn": 0}


def test_records_that_cannot_be_transformed_stop_the_query_or_are_left_out() -> None:
    wrong = FLAT | {"transforms.flat.add.fields": "source.nothing"}
    with pytest.raises(TransformError, match=r"source\.nothing"):
        records(BOTH, **wrong)
    assert records(BOTH, **wrong, **{"errors.tolerance": "all"}) == []


def test_transactions_are_records_before_their_events() -> None:
    captured = CapturedChanges(BOTH.tables[:1], (ChangedTransaction("1:2", 0, (("public.a", 2),)),))
    topics = [topic for topic, _, _ in records(captured, **{"provide.transaction.metadata": "true"})]
    assert topics == ["shop.transaction", "shop.transaction", "shop.public.a", "shop.public.a"]


def test_a_heartbeat_has_its_own_topic() -> None:
    (batch,) = RecordsOutput(options()).heartbeat(17)
    assert batch.column("topic").to_pylist() == ["__debezium-heartbeat.shop"]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"key.converter": "AvroConvertor"}, ConverterConfigError),
        ({"transforms": "x"}, TransformConfigError),
        ({"errors.tolerance": "some"}, OptionError),
        ({"errors.deadletterqueue.topic.name": "dead"}, OptionError),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(more: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        check_records_output(options(**more))


def test_many_records_of_several_tables_are_put_into_order_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at once could exceed what an Arrow array holds."""
    monkeypatch.setattr(records_output, "WINDOW_BYTES", 40_000)
    ordinals = np.random.default_rng(5).permutation(1000)
    tables = [np.sort(part) for part in np.split(ordinals, [100, 700])]
    captured = CapturedChanges(
        tuple(inserts(name, part.tolist(), part.tolist()) for name, part in zip("abc", tables, strict=True))
    )
    batches = list(RecordsOutput(options()).records(captured))
    assert [json.loads(key)["id"] for batch in batches for key in batch.column("key").to_pylist()] == list(range(1000))
    assert len(batches) > 5
    assert max(batch.nbytes for batch in batches) < 120_000


def unsent(kind: Any, **more: str) -> Any:
    """The `after` of an update whose column `v` the database did not send."""
    one = inserts("a", [1], [0]).changes
    schema = TableSchema("db", "public", "a", (*one.table.columns, ColumnSchema("v", kind, True)), (0,))
    after = pa.StructArray.from_arrays([pa.array([1], pa.int64()), pa.nulls(1, kind)], names=["id", "v"])
    changes = structs.replace(one, table=schema, after=after, unavailable={1: np.ones(1, np.bool_)})
    ((_, _, value),) = records(CapturedChanges((TableChange(changes, pa.array([""])),)), **more)
    return value["after"]


def test_a_value_that_was_not_sent_and_has_no_placeholder_stops_the_query() -> None:
    """Null would be written over the value by a sink."""
    assert unsent(pa.string()) == {"id": 1, "v": "__debezium_unavailable_value"}
    for kind in (pa.list_(pa.float64()), pa.float64()):
        with pytest.raises(
            CaptureError, match=r"values of v.*REPLICA IDENTITY FULL.*unavailable\.value\.handling\.mode"
        ):
            unsent(kind)
        assert unsent(kind, **{"unavailable.value.handling.mode": "null"}) == {"id": 1, "v": None}
    with pytest.raises(OptionError, match="list is for output=rows"):
        options(**{"unavailable.value.handling.mode": "list"})


def test_decimals_are_texts_in_json_without_schemas_unless_an_option_says_otherwise() -> None:
    """In base64, a reader could not tell them from any other text."""
    one = inserts("a", [1], [0]).changes
    columns = (ColumnSchema("d", pa.decimal128(10, 2)), ColumnSchema("u", pa.uint64()))
    schema = TableSchema("db", "public", "a", (*one.table.columns, *columns), (0,))
    after = pa.StructArray.from_arrays(
        [
            pa.array([1], pa.int64()),
            pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            pa.array([2**64 - 1], pa.uint64()),
        ],
        names=["id", "d", "u"],
    )
    change = TableChange(structs.replace(one, table=schema, after=after), pa.array([""]))

    def value(**more: str) -> tuple[Any, Any]:
        given = {name.replace("_", "."): text for name, text in more.items()}
        ((_, _, found),) = records(CapturedChanges((change,)), **given)
        return found["after"]["d"], found["after"]["u"]

    assert value() == ("1.50", 2**64 - 1)
    assert value(decimal_handling_mode="precise") == (1.5, 2**64 - 1)
    assert value(**{"value.converter.decimal.format": "BASE64"}) == ("AJY=", "AP//////////")
