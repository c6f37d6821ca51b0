"""Row changes as Debezium's events: envelope, keys, tombstones, headers, and the bytes that JsonConverter writes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.events.changes import (
    ChangeBatch,
    ChangedTransaction,
    ColumnSchema,
    Meaning,
    MySqlPositions,
    PostgresPositions,
    TableSchema,
)
from barnabas.spark.connectors.events.envelope import change_records
from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.metadata import heartbeat_records, transaction_records
from barnabas.spark.connectors.events.options import (
    BinaryHandling,
    DecimalHandling,
    EventOptions,
    TimePrecision,
)
from barnabas.spark.connectors.events.presence import declared_columns

OPTIONS = EventOptions("shop", "postgresql", "1.0")
COLUMNS = (ColumnSchema("id", pa.int64(), False), ColumnSchema("note", pa.string()))
TABLE = TableSchema("db", "public", "orders", COLUMNS, (0,))
CONTEXT = [
    ("__debezium.context.connectorLogicalName", b"shop"),
    ("__debezium.context.taskId", b"0"),
    ("__debezium.context.connectorName", b"postgresql"),
]


def side(table: TableSchema, rows: list[tuple[Any, ...] | None]) -> Any:
    names = [column.name for column in table.columns]
    kind = pa.struct([pa.field(column.name, column.type) for column in table.columns])
    return pa.array([None if row is None else dict(zip(names, row, strict=True)) for row in rows], kind)


def changes(op: str, before: Any, after: Any, table: TableSchema = TABLE, **more: Any) -> ChangeBatch:
    size = len(op)
    numbers = np.arange(size, dtype=np.int64)
    positions = PostgresPositions(numbers + 100, np.where(numbers == 0, -1, 90), numbers + 7)
    return ChangeBatch(
        table,
        np.frombuffer(op.encode(), np.uint8),
        None if before is None else side(table, before),
        None if after is None else side(table, after),
        numbers,
        numbers + 1_700_000_000_123_456,
        positions,
        **more,
    )


def decoded(batch: Any, part: str = "value", **config: str) -> list[Any]:
    """Keys or values after a converter, as Python values."""
    texts = {f"{part}.converter.{name.replace('_', '.')}": value for name, value in config.items()}
    converter = make_converter(f"{part}.converter", texts, is_key=part == "key")
    field = batch.schema.field(part)
    encoded = converter.encode_column(batch.column(part), field, batch.column("topic")).to_pylist()
    return [None if one is None else json.loads(one) for one in encoded]


def values(batch: Any) -> list[Any]:
    return decoded(batch, schemas_enable="false")


def keys(batch: Any) -> list[Any]:
    return decoded(batch, "key", schemas_enable="false")


def headers(batch: Any) -> list[Any]:
    return [[(one["key"], one["value"]) for one in row] for row in batch.column("headers").to_pylist()]


def test_an_insert_has_debeziums_envelope() -> None:
    batch = change_records(changes("c", None, [(1, "a")]), OPTIONS)
    assert values(batch) == [
        {
            "before": None,
            "after": {"id": 1, "note": "a"},
            "source": {
                "version": "1.0",
                "connector": "postgresql",
                "name": "shop",
                "ts_ms": 1_700_000_000_123,
                "snapshot": "false",
                "db": "db",
                "sequence": '[null,"100"]',
                "ts_us": 1_700_000_000_123_456,
                "ts_ns": 1_700_000_000_123_456_000,
                "schema": "public",
                "table": "orders",
                "txId": 7,
                "lsn": 100,
                "xmin": None,
            },
            "transaction": None,
            "op": "c",
            "ts_ms": 1_700_000_000_123,
            "ts_us": 1_700_000_000_123_456,
            "ts_ns": 1_700_000_000_123_456_000,
        }
    ]
    assert keys(batch) == [{"id": 1}]
    assert headers(batch) == [CONTEXT]
    assert batch.column("topic").to_pylist() == ["shop.public.orders"]
    assert batch.column("timestamp").to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)]


def test_the_schemas_have_debeziums_names() -> None:
    batch = change_records(changes("c", None, [(1, "a")]), OPTIONS)
    (value,) = decoded(batch)
    schema = value["schema"]
    assert (schema["name"], schema["version"], schema["optional"]) == ("shop.public.orders.Envelope", 2, False)
    assert [field["field"] for field in schema["fields"]] == [
        "before",
        "after",
        "source",
        "transaction",
        "op",
        "ts_ms",
        "ts_us",
        "ts_ns",
    ]
    assert [field.get("name") for field in schema["fields"][:4]] == [
        "shop.public.orders.Value",
        "shop.public.orders.Value",
        "io.debezium.connector.postgresql.Source",
        "event.block",
    ]
    assert schema["fields"][1]["fields"] == [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "note"},
    ]
    (key,) = decoded(batch, "key")
    assert key["schema"] == {
        "type": "struct",
        "fields": [{"type": "int64", "optional": False, "field": "id"}],
        "optional": False,
        "name": "shop.public.orders.Key",
    }


def sides(batch: Any) -> list[Any]:
    return [one and (one["op"], one["before"], one["after"]) for one in values(batch)]


def test_a_delete_is_followed_by_a_tombstone() -> None:
    one = changes("ud", [None, (2, None)], [(1, "b"), None])
    batch = change_records(one, OPTIONS)
    assert sides(batch) == [
        ("u", None, {"id": 1, "note": "b"}),
        ("d", {"id": 2, "note": None}, None),
        None,
    ]
    assert keys(batch) == [{"id": 1}, {"id": 2}, {"id": 2}]
    assert batch.column("__ordinal").to_pylist() == [0, 1, 1]
    without = change_records(one, structs.replace(OPTIONS, tombstones_on_delete=False))
    assert [row and row[0] for row in sides(without)] == ["u", "d"]


def test_a_changed_key_is_a_delete_a_tombstone_and_a_create_that_name_each_other() -> None:
    one = changes("uu", [(1, None), None], [(2, "b"), (3, "c")], key_changed=np.array([True, False]), unavailable={})
    batch = change_records(one, OPTIONS)
    assert sides(batch) == [
        ("d", {"id": 1, "note": None}, None),
        None,
        ("c", None, {"id": 2, "note": "b"}),
        ("u", None, {"id": 3, "note": "c"}),
    ]
    assert keys(batch) == [{"id": 1}, {"id": 1}, {"id": 2}, {"id": 3}]
    assert headers(batch) == [
        [*CONTEXT, ("__debezium.newkey", b'{"id":2}')],
        [*CONTEXT, ("__debezium.newkey", b'{"id":2}')],
        [*CONTEXT, ("__debezium.oldkey", b'{"id":1}')],
        CONTEXT,
    ]
    plain = structs.replace(OPTIONS, tombstones_on_delete=False)
    assert keys(change_records(one, plain)) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_snapshot_has_reads_with_their_place() -> None:
    one = changes("rr", None, [(1, "a"), (2, "b")], snapshot=pa.array(["first", "last"]))
    found = values(change_records(one, OPTIONS))
    assert [(row["op"], row["source"]["snapshot"]) for row in found] == [("r", "first"), ("r", "last")]


def test_a_table_without_a_key_has_null_keys() -> None:
    table = TableSchema("db", "public", "orders", COLUMNS, ())
    assert keys(change_records(changes("c", None, [(1, "a")], table), OPTIONS)) == [None]


def test_a_truncate_has_neither_a_key_nor_rows() -> None:
    batch = change_records(changes("t", None, None, TableSchema("db", "public", "orders", (), ())), OPTIONS)
    [value] = values(batch)
    assert (value["op"], value["before"], value["after"], value["source"]["table"]) == ("t", None, None, "orders")
    assert (keys(batch), batch.column("topic").to_pylist()) == ([None], ["shop.public.orders"])
    [with_schema] = decoded(batch)
    assert [(part["field"], part["fields"]) for part in with_schema["schema"]["fields"][:2]] == [
        ("before", []),
        ("after", []),
    ]


def test_values_that_were_not_sent_have_the_placeholder() -> None:
    one = changes("u", None, [(1, None)], unavailable={1: np.array([True])})
    assert values(change_records(one, OPTIONS))[0]["after"]["note"] == "__debezium_unavailable_value"


def test_a_header_names_the_values_that_were_not_sent_and_tells_them_from_a_text_of_a_user() -> None:
    lost = "__debezium_unavailable_value"
    one = changes(
        "uuuu",
        [None, (1, "old"), None, None],
        [(1, None), (2, None), (3, lost), (4, "x")],
        key_changed=np.array([False, True, False, False]),
        unavailable={1: np.array([True, True, False, False])},
    )
    batch = change_records(one, OPTIONS)
    has, declared = declared_columns(batch.column("headers"))
    ops = [None if value is None else value["op"] for value in values(batch)]
    assert ops == ["u", "d", None, "c", "u", "u"]
    assert has.tolist() == [True, False, False, True, True, False]
    assert {name: mask.tolist() for name, mask in declared.items()} == {
        "note": [True, False, False, True, False, False]
    }
    names = [header["key"] for header in batch.column("headers")[3].as_py()]
    assert names[-2:] == ["__debezium.oldkey", "__barnabas.unavailable"]
    assert batch.column("headers")[4].as_py()[-1] == {"key": "__barnabas.unavailable", "value": b"[]"}


def test_transaction_metadata_counts_events() -> None:
    order = np.array([1, 3])
    one = changes(
        "uc",
        [(1, None), None],
        [(2, "b"), (3, "c")],
        key_changed=np.array([True, False]),
        transaction=pa.array(["5:90", "5:90"]),
        total_order=order,
        table_order=order,
    )
    wanted = structs.replace(OPTIONS, transaction_metadata=True)
    found = [row and row["transaction"] for row in values(change_records(one, wanted))]
    assert [row and (row["id"], row["total_order"], row["data_collection_order"]) for row in found] == [
        ("5:90", 1, 1),
        None,
        ("5:90", 2, 2),
        ("5:90", 3, 3),
    ]


def test_transactions_and_heartbeats_are_records_of_their_own_topics() -> None:
    batch = transaction_records([ChangedTransaction("5:90", 1_000_000, (("public.orders", 3),))], OPTIONS)
    collections = [{"data_collection": "public.orders", "event_count": 3}]
    assert values(batch) == [
        {"status": "BEGIN", "id": "5:90", "ts_ms": 1000, "event_count": None, "data_collections": None},
        {"status": "END", "id": "5:90", "ts_ms": 1000, "event_count": 3, "data_collections": collections},
    ]
    assert (keys(batch)[0], batch.column("topic")[0].as_py()) == ({"id": "5:90"}, "shop.transaction")
    beat = heartbeat_records(17, OPTIONS)
    assert (keys(beat), values(beat)) == ([{"serverName": "shop"}], [{"ts_ms": 17}])
    assert beat.column("topic").to_pylist() == ["__debezium-heartbeat.shop"]


def test_mysql_has_its_own_source() -> None:
    positions = MySqlPositions(
        np.array([1]), pa.array(["0-1-5"]), pa.array(["binlog.1"]), np.array([4]), np.array([0]), np.array([-1])
    )
    table = TableSchema("shop", "", "orders", COLUMNS, (0,))
    one = structs.replace(changes("c", None, [(1, "a")], table), positions=positions)
    batch = change_records(one, structs.replace(OPTIONS, connector="mysql"))
    (value,) = values(batch)
    assert list(value["source"])[-8:] == ["table", "server_id", "gtid", "file", "pos", "row", "thread", "query"]
    assert (value["source"]["file"], value["source"]["thread"]) == ("binlog.1", None)
    assert batch.column("topic").to_pylist() == ["shop.shop.orders"]


TYPED = (
    (ColumnSchema("v", pa.decimal128(10, 2)), Decimal("1.25"), "fQ==", "org.apache.kafka.connect.data.Decimal"),
    (ColumnSchema("v", pa.date32()), date(1970, 1, 3), 2, "io.debezium.time.Date"),
    (ColumnSchema("v", pa.time64("us")), time(0, 0, 1), 1_000_000, "io.debezium.time.MicroTime"),
    (ColumnSchema("v", pa.time64("us"), digits=3), time(0, 0, 1), 1000, "io.debezium.time.Time"),
    (ColumnSchema("v", pa.int64(), True, Meaning.TIME, digits=3), 1 << 31, 1 << 31, "io.debezium.time.MicroTime"),
    (
        ColumnSchema("v", pa.timestamp("us")),
        datetime(1970, 1, 1, 0, 0, 1),
        1_000_000,
        "io.debezium.time.MicroTimestamp",
    ),
    (
        ColumnSchema("v", pa.timestamp("us"), digits=0),
        datetime(1970, 1, 1, 0, 0, 1),
        1000,
        "io.debezium.time.Timestamp",
    ),
    (
        ColumnSchema("v", pa.timestamp("us", "UTC")),
        datetime(2024, 1, 2, 3, 4, 5, 600_000, UTC),
        "2024-01-02T03:04:05.6Z",
        "io.debezium.time.ZonedTimestamp",
    ),
    (ColumnSchema("v", pa.string(), True, Meaning.JSON), '{"a":1}', '{"a":1}', "io.debezium.data.Json"),
    (ColumnSchema("v", pa.string(), True, Meaning.UUID), "u", "u", "io.debezium.data.Uuid"),
    (
        ColumnSchema("v", pa.string(), True, Meaning.NUMERIC),
        "-1.5",
        {"scale": 1, "value": "8Q=="},
        "io.debezium.data.VariableScaleDecimal",
    ),
    (ColumnSchema("v", pa.binary()), b"\0\xff", "AP8=", None),
    (ColumnSchema("v", pa.list_(pa.string())), ["a", None], ["a", None], None),
    (
        ColumnSchema("v", pa.map_(pa.string(), pa.string())),
        [("a", "1"), ("b", None)],
        '{"a":"1","b":null}',
        "io.debezium.data.Json",
    ),
    (ColumnSchema("v", pa.float64()), 0.5, 0.5, None),
    (ColumnSchema("v", pa.bool_()), True, True, None),
)


@pytest.mark.parametrize(("column", "given", "expected", "name"), TYPED)
def test_each_type_has_debeziums_form_and_name(
    column: ColumnSchema, given: Any, expected: Any, name: str | None
) -> None:
    table = TableSchema("db", "public", "t", (COLUMNS[0], column), (0,))
    batch = change_records(changes("cc", None, [(1, given), (2, None)], table), OPTIONS)
    first, second = decoded(batch)
    assert (first["payload"]["after"]["v"], second["payload"]["after"]["v"]) == (expected, None)
    assert first["schema"]["fields"][1]["fields"][1].get("name") == name


@pytest.mark.parametrize(
    ("column", "given", "option", "expected"),
    [
        (ColumnSchema("v", pa.decimal128(10, 2)), Decimal("1.25"), {"decimals": DecimalHandling.STRING}, "1.25"),
        (ColumnSchema("v", pa.decimal128(10, 2)), Decimal("1.25"), {"decimals": DecimalHandling.DOUBLE}, 1.25),
        (ColumnSchema("v", pa.binary()), b"\0\xff", {"binaries": BinaryHandling.HEX}, "00ff"),
        (ColumnSchema("v", pa.date32()), date(1970, 1, 3), {"times": TimePrecision.CONNECT}, 2),
        (ColumnSchema("v", pa.time64("us")), time(0, 0, 1), {"times": TimePrecision.CONNECT}, 1000),
        (ColumnSchema("v", pa.timestamp("us")), datetime(1970, 1, 1, 0, 0, 1), {"times": TimePrecision.CONNECT}, 1000),
        (ColumnSchema("v", pa.time64("us")), time(0, 0, 1), {"times": TimePrecision.NANOSECONDS}, 1_000_000_000),
    ],
)
def test_handling_modes_choose_other_forms(
    column: ColumnSchema, given: Any, option: dict[str, Any], expected: Any
) -> None:
    table = TableSchema("db", "public", "t", (COLUMNS[0], column), (0,))
    batch = change_records(changes("c", None, [(1, given)], table), structs.replace(OPTIONS, **option))
    assert values(batch)[0]["after"]["v"] == expected


def test_the_same_changes_give_the_same_bytes_however_they_are_cut() -> None:
    one = changes("cud", [None, None, (1, None)], [(1, 'a"\\\n'), (1, "\U0001f600"), None])
    whole = decoded(change_records(one, OPTIONS))
    assert whole == decoded(change_records(one, OPTIONS))
    assert whole[1]["payload"]["after"]["note"] == "\U0001f600"


def form_of(column: ColumnSchema, values: list[Any], **options: Any) -> list[Any]:
    """A column of an event, in the types that transforms see."""
    table = structs.replace(TABLE, columns=(COLUMNS[0], column))
    batch = change_records(
        changes("c" * len(values), None, list(enumerate(values)), table), structs.replace(OPTIONS, **options)
    )
    found: list[Any] = batch.column("value").field("after").field(1).to_pylist()
    return found


def test_a_value_without_a_form_is_named_with_the_option_that_decides() -> None:
    moment = ColumnSchema("v", pa.timestamp("us"))
    far = [datetime(2000, 1, 1), datetime(9999, 1, 1)]
    with pytest.raises(
        EventError, match=r"the value 9999-01-01 00:00:00 of the column v .*another time\.precision\.mode"
    ):
        form_of(moment, far, times=TimePrecision.NANOSECONDS)
    number = ColumnSchema("v", pa.string(), meaning=Meaning.NUMERIC)
    with pytest.raises(EventError, match=r"the value Infinity of the column v is no decimal: set nan\.handling\.mode"):
        form_of(number, ["1.5", "Infinity"])
    assert form_of(number, ["1.5", "-Infinity", None], decimals=DecimalHandling.DOUBLE) == [1.5, float("-inf"), None]
    with pytest.raises(EventError, match=r"the value 999.*\.\.\. of the column v .*another decimal\.handling\.mode"):
        form_of(number, ["1.5", "9" * 400], decimals=DecimalHandling.DOUBLE)


def test_the_end_of_a_day_is_a_number_in_events() -> None:
    end = pa.array([86_400_000_000], pa.int64()).view(pa.time64("us"))
    for digits, unit, options in ((None, 1, {}), (3, 1000, {}), (None, 1000, {"times": TimePrecision.CONNECT})):
        column = ColumnSchema("v", pa.time64("us"), digits=digits)
        table = structs.replace(TABLE, columns=(COLUMNS[0], column))
        after = pa.StructArray.from_arrays([pa.array([1]), end], names=["id", "v"])
        one = structs.replace(changes("c", None, [(1, None)], table), after=after)
        ((event,),) = [values(change_records(one, structs.replace(OPTIONS, **options)))]
        assert event["after"]["v"] == 86_400_000_000 // unit
