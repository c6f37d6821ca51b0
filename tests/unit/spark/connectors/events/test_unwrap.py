"""ExtractNewRecordState: flat rows from change events, with every way to treat deletes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from barnabas.spark.connectors.events.changes import ChangeBatch, ColumnSchema, PostgresPositions, TableSchema
from barnabas.spark.connectors.events.envelope import change_records
from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.metadata import heartbeat_records
from barnabas.spark.connectors.events.options import EventOptions
from barnabas.spark.connectors.events.unwrap import DeleteHandling, UnwrapOptions, added_fields, unwrap

OPTIONS = EventOptions("shop", "postgresql", "1")
TABLE = TableSchema(
    "db", "public", "orders", (ColumnSchema("id", pa.int64(), False), ColumnSchema("note", pa.string())), (0,)
)
KIND = pa.struct([pa.field("id", pa.int64()), pa.field("note", pa.string())])


def events() -> Any:
    """An insert, and a delete with its tombstone."""
    numbers = np.arange(2, dtype=np.int64)
    changes = ChangeBatch(
        TABLE,
        np.frombuffer(b"cd", np.uint8),
        pa.array([None, {"id": 2, "note": "old"}], KIND),
        pa.array([{"id": 1, "note": "a"}, None], KIND),
        numbers,
        numbers * 1000,
        PostgresPositions(numbers, numbers, numbers),
    )
    return change_records(changes, OPTIONS)


def flat(options: UnwrapOptions) -> list[Any]:
    batch = unwrap(events(), options)
    return list(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))


INSERTED: dict[str, Any] = {"id": 1, "note": "a"}
DELETED: dict[str, Any] = {"id": 2, "note": "old", "__deleted": "true"}
KEPT = {**INSERTED, "__deleted": "false"}
TOMBSTONE = ({"id": 2}, None)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("tombstone", [({"id": 1}, INSERTED), TOMBSTONE]),
        ("drop", [({"id": 1}, INSERTED)]),
        ("rewrite", [({"id": 1}, KEPT), ({"id": 2}, DELETED)]),
        ("rewrite-with-tombstone", [({"id": 1}, KEPT), ({"id": 2}, DELETED), TOMBSTONE]),
        ("delete-to-tombstone", [({"id": 1}, INSERTED), TOMBSTONE]),
    ],
)
def test_deletes_are_treated_by_the_mode(mode: str, expected: list[Any]) -> None:
    assert flat(UnwrapOptions(DeleteHandling(mode))) == expected


def test_truncates_are_left_out() -> None:
    number = np.zeros(1, np.int64)
    table = TableSchema("db", "public", "orders", (), ())
    positions = PostgresPositions(number, number, number)
    truncate = ChangeBatch(table, np.frombuffer(b"t", np.uint8), None, None, number, number, positions)
    assert unwrap(change_records(truncate, OPTIONS), UnwrapOptions()).num_rows == 0


def test_fields_of_the_envelope_are_added_with_their_prefix() -> None:
    options = UnwrapOptions(DeleteHandling.DROP, added_fields(["op", "table", "source.ts_ms", "lsn:at"], "__"))
    ((_, row),) = flat(options)
    assert row == {**INSERTED, "__op": "c", "__table": "orders", "__source_ts_ms": 0, "__at": 0}


def test_fields_of_the_envelope_are_added_as_headers() -> None:
    options = UnwrapOptions(headers=added_fields(["op"], "__"))
    headers = unwrap(events(), options).column("headers").to_pylist()
    names = [[(one["key"], one["value"]) for one in row] for row in headers]
    assert names[0][-1] == ("__op", b"c")
    assert all(name != "__op" for name, _ in names[1])


def test_a_field_can_be_the_topic() -> None:
    batch = unwrap(events(), UnwrapOptions(DeleteHandling.TOMBSTONE, route_by_field="note"))
    assert batch.column("topic").to_pylist() == ["a", "shop.public.orders"]


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(EventError, match=r"no field source\.nothing"):
        flat(UnwrapOptions(fields=added_fields(["nothing"], "__")))
    with pytest.raises(EventError, match=r"route\.by\.field"):
        flat(UnwrapOptions(route_by_field="nothing"))


def test_the_schema_is_that_of_the_row() -> None:
    field = unwrap(events(), UnwrapOptions()).schema.field("value")
    assert field.metadata == {b"connect.name": b"shop.public.orders.Value", b"connect.optional": b"false"}


def test_other_records_stay() -> None:
    beat = heartbeat_records(1, OPTIONS)
    assert unwrap(beat, UnwrapOptions(DeleteHandling.DROP)).equals(beat)
