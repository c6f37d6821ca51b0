"""ExtractNewRecordState: flat rows from change events, with every way to treat deletes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from barnabas.spark.connectors.converters.runs import json_field
from barnabas.spark.connectors.events.changes import ChangeBatch, ColumnSchema, PostgresPositions, TableSchema
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE, change_records
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
        ("keep-tombstone", [({"id": 1}, INSERTED), TOMBSTONE]),
        ("drop", [({"id": 1}, INSERTED)]),
        ("rewrite", [({"id": 1}, KEPT), ({"id": 2}, DELETED)]),
        ("rewrite-with-tombstone", [({"id": 1}, KEPT), ({"id": 2}, DELETED), TOMBSTONE]),
        ("delete-to-tombstone", [({"id": 1}, INSERTED), TOMBSTONE]),
    ],
)
def test_deletes_are_treated_by_the_mode(mode: str, expected: list[Any]) -> None:
    assert flat(UnwrapOptions(DeleteHandling(mode))) == expected


def test_a_delete_without_a_tombstone_deletes_by_default() -> None:
    batch = unwrap(events().slice(0, 2), UnwrapOptions())
    assert batch.column("value").to_pylist() == [INSERTED, None]


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
    assert names[1][-1] == ("__op", b"d")


def test_a_field_can_be_the_topic_and_that_of_a_deleted_row_is_the_old_one() -> None:
    batch = unwrap(events(), UnwrapOptions(DeleteHandling.DELETE_TO_TOMBSTONE, route_by_field="note"))
    assert batch.column("topic").to_pylist() == ["a", "old"]


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(EventError, match=r"no field source\.nothing.* source\.lsn, .* op, ts_ms"):
        flat(UnwrapOptions(fields=added_fields(["nothing"], "__")))
    with pytest.raises(EventError, match=r"route\.by\.field"):
        flat(UnwrapOptions(route_by_field="nothing"))


def test_the_schema_is_that_of_the_row() -> None:
    field = unwrap(events(), UnwrapOptions()).schema.field("value")
    assert field.metadata == {b"connect.name": b"shop.public.orders.Value", b"connect.optional": b"false"}


def test_other_records_stay() -> None:
    beat = heartbeat_records(1, OPTIONS)
    assert unwrap(beat, UnwrapOptions(DeleteHandling.DROP)).equals(beat)


def without(name: str, schema_name: bytes | None) -> Any:
    """The events without a field of the envelope, and with this name of the schema."""
    batch = events()
    field, column = batch.schema.field("value"), batch.column("value")
    parts = [part for part in field.type if part.name != name]
    values = pa.StructArray.from_arrays(
        [column.field(part.name) for part in parts], fields=parts, mask=column.is_null()
    )
    metadata = None if schema_name is None else {b"connect.name": schema_name}
    schema = batch.schema.set(batch.schema.get_field_index("value"), pa.field("value", values.type, True, metadata))
    columns = [values if one == "value" else batch.column(one) for one in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@pytest.mark.parametrize("name", [b"shop.public.orders.Envelope", None])
def test_events_without_a_source_block_are_made_flat(name: bytes | None) -> None:
    batch = unwrap(without("source", name), UnwrapOptions(fields=added_fields(["op", "source.ts_ms"], "__")))
    assert batch.column("value").to_pylist() == [{**INSERTED, "__op": "c", "__source_ts_ms": 0}, None]


def test_a_value_with_another_schema_stays_though_it_has_the_fields_of_an_event() -> None:
    batch = without("source", b"shop.Order").slice(0, 2)
    assert unwrap(batch, UnwrapOptions()).equals(batch)


def test_a_field_of_the_transaction_needs_no_struct() -> None:
    options = UnwrapOptions(DeleteHandling.DROP, added_fields(["id", "total_order:at"], "__"))
    assert flat(options) == [({"id": 1}, {**INSERTED, "__id": None, "__at": None})]


def without_schema(*texts: str | None) -> Any:
    """Records whose values are JSON texts, as the JsonConverter reads them with schemas.enable=false."""
    count = len(texts)
    fields = [
        pa.field("topic", pa.string()),
        pa.field("key", pa.string()),
        json_field("value"),
        pa.field("headers", HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(["t"] * count), pa.array(["k"] * count), pa.array(texts, pa.string()), pa.nulls(count, HEADERS_TYPE)],
        schema=pa.schema(fields),
    )


JSON_EVENTS = (
    '{"before":null,"after":{"id":1,"n":1.10},"source":{"lsn":7},"op":"c","ts_ms":5}',
    '{"after":null,"before":{"id":2},"op":"d","ts_ms":6,"source":{"lsn":8}}',
    None,
    '{"ts_ms":9}',
    '{"before":null,"after":null,"source":null,"op":"t"}',
)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("tombstone", ['{"id":1,"n":1.10}', None, '{"ts_ms":9}']),
        ("drop", ['{"id":1,"n":1.10}', '{"ts_ms":9}']),
        (
            "rewrite",
            ['{"id":1,"n":1.10,"__deleted":"false"}', '{"id":2,"__deleted":"true"}', '{"ts_ms":9}'],
        ),
    ],
)
def test_events_without_a_schema_become_flat_as_well(mode: str, expected: list[str | None]) -> None:
    batch = unwrap(without_schema(*JSON_EVENTS), UnwrapOptions(DeleteHandling(mode)))
    assert batch.column("value").to_pylist() == expected


def test_events_without_a_schema_keep_fields_and_say_their_topic() -> None:
    options = UnwrapOptions(
        fields=added_fields(["op", "source.lsn"], "__"), headers=added_fields(["ts_ms"], "__"), route_by_field="id"
    )
    batch = unwrap(without_schema(JSON_EVENTS[0], None), options)
    assert batch.column("value").to_pylist() == ['{"id":1,"n":1.10,"__op":"c","__source_lsn":7}']
    assert batch.column("topic").to_pylist() == ["1"]
    assert batch.column("headers").to_pylist() == [[{"key": "__ts_ms", "value": b"5"}]]
    outside = '{"before":null,"after":{"id":1},"transaction":null,"op":"c"}'
    batch = unwrap(without_schema(outside), UnwrapOptions(fields=added_fields(["transaction.id"], "__")))
    assert batch.column("value").to_pylist() == ['{"id":1,"__transaction_id":null}']
    with pytest.raises(EventError, match=r"no field source\.nope.*add\.fields"):
        unwrap(without_schema(JSON_EVENTS[0]), UnwrapOptions(fields=added_fields(["source.nope"], "")))
    with pytest.raises(EventError, match="after of a change event is not an object"):
        unwrap(without_schema('{"before":null,"after":[1],"op":"c"}'), UnwrapOptions())
