"""Changes as records for a topic: converters, transforms, the order of several tables, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

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
