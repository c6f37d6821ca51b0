"""Debezium's events of topics into tables of both databases: values by their schemas, deletes, and bad records."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.errors import SinkError
from tests.system.connectors.sql_databases import MariaDbSinkDatabase, PostgresSinkDatabase, SinkDatabase, write

pytestmark = pytest.mark.system

DATABASES = {"postgres": PostgresSinkDatabase, "mariadb": MariaDbSinkDatabase}
OPTIONS = {
    "key_converter": "JsonConverter",
    "value_converter": "JsonConverter",
    "transforms": "unwrap,route",
    "transforms_unwrap_type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms_route_type": "RegexRouter",
    "transforms_route_regex": "shop\\.(.*)",
    "transforms_route_replacement": "$1",
    "insert_mode": "upsert",
    "pk_mode": "record_key",
    "delete_enabled": "true",
    "auto_create": "true",
    "auto_evolve": "true",
}
FIELDS: tuple[tuple[str, str, str | None], ...] = (
    ("id", "int32", None),
    ("name", "string", None),
    ("day", "int32", "io.debezium.time.Date"),
    ("at", "int64", "io.debezium.time.MicroTimestamp"),
    ("instant", "string", "io.debezium.time.ZonedTimestamp"),
    ("clock", "int64", "io.debezium.time.MicroTime"),
    ("document", "string", "io.debezium.data.Json"),
    ("price", "bytes", "org.apache.kafka.connect.data.Decimal"),
    ("raw", "bytes", None),
)
NOON = datetime.datetime(2024, 7, 1, 12, 0, 0, 1)


@pytest.fixture(params=list(DATABASES))
def database(request: pytest.FixtureRequest) -> Iterator[SinkDatabase]:
    opened = DATABASES[request.param](request.getfixturevalue(request.param))
    opened.open()
    yield opened
    opened.connection.close()


def row(number: int, name: str) -> dict[str, Any]:
    micros = int(NOON.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000 + 1
    return {
        "id": number,
        "name": name,
        "day": 19905,
        "at": micros,
        "instant": "2024-07-01T12:00:00.000001Z",
        "clock": 3_600_000_001,
        "document": '{"a":[1,null]}',
        "price": base64.b64encode((1250).to_bytes(2, "big")).decode(),
        "raw": base64.b64encode(b"\x00\xff").decode(),
    }


def fields(names: tuple[tuple[str, str, str | None], ...]) -> list[dict[str, Any]]:
    found = []
    for name, kind, meaning in names:
        field: dict[str, Any] = {"field": name, "type": kind, "optional": name != "id"}
        if meaning is not None:
            field |= {"name": meaning, "version": 1}
        if meaning == "org.apache.kafka.connect.data.Decimal":
            field["parameters"] = {"scale": "2", "connect.decimal.precision": "10"}
        found.append(field)
    return found


def event(before: Any, after: Any, op: str) -> bytes:
    image = {"type": "struct", "optional": True, "fields": fields(FIELDS), "name": "shop.orders.Value"}
    source = {"type": "struct", "optional": False, "fields": [{"field": "db", "type": "string"}], "field": "source"}
    last = {"field": "op", "type": "string", "optional": False}
    parts = [{**image, "field": "before"}, {**image, "field": "after"}, source, last]
    schema = {"type": "struct", "optional": False, "name": "shop.orders.Envelope", "fields": parts}
    payload = {"before": before, "after": after, "source": {"db": "shop"}, "op": op}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def key(number: int) -> bytes:
    schema = {"type": "struct", "optional": False, "fields": fields(FIELDS[:1])}
    return json.dumps({"schema": schema, "payload": {"id": number}}).encode()


def records(*rows: tuple[int, bytes | None], start: int = 0) -> Any:
    count = len(rows)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key(number) for number, _ in rows], pa.binary()),
            "value": pa.array([value for _, value in rows], pa.binary()),
            "topic": ["shop.orders"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
        }
    )


def test_events_become_rows_with_the_values_of_their_source(database: SinkDatabase) -> None:
    plan = database.plan(**OPTIONS)
    one, two = row(1, "one"), row(2, "two")
    write(plan, 0, records((1, event(None, one, "c")), (2, event(None, two, "r")), (1, event(one, row(1, "uno"), "u"))))
    (found, other) = database.rows("SELECT * FROM orders ORDER BY id")
    is_postgres = isinstance(database, PostgresSinkDatabase)
    names = [name for name, _, _ in FIELDS]
    assert dict(zip(names, found, strict=True)) == {
        "id": 1,
        "name": "uno",
        "day": datetime.date(2024, 7, 1),
        "at": NOON,
        "instant": NOON.replace(tzinfo=datetime.UTC) if is_postgres else NOON,
        "clock": datetime.time(1, 0, 0, 1) if is_postgres else datetime.timedelta(hours=1, microseconds=1),
        "document": {"a": [1, None]} if is_postgres else '{"a":[1,null]}',
        "price": Decimal("12.50"),
        "raw": b"\x00\xff",
    }
    assert other[:2] == (2, "two")
    write(plan, 1, records((2, event(two, None, "d")), (2, None), (3, event(None, row(3, "three"), "c")), start=3))
    assert database.rows("SELECT id, name FROM orders ORDER BY id") == [(1, "uno"), (3, "three")]


def test_a_record_that_does_not_fit_is_named_or_left_out(database: SinkDatabase) -> None:
    database.run("CREATE TABLE orders (id int PRIMARY KEY, name varchar(3))")
    given = {**OPTIONS, "fields_whitelist": "name"}
    rows = records(
        (1, event(None, row(1, "one"), "c")), (2, event(None, row(2, "long"), "c")), (3, b"no JSON"), start=7
    )
    with pytest.raises(SinkError, match=r"shop\.orders-0 offset (8|9): "):
        write(database.plan(**given), 0, rows)
    write(database.plan(**given, errors_tolerance="all"), 0, rows)
    assert database.rows("SELECT * FROM orders") == [(1, "one")]
