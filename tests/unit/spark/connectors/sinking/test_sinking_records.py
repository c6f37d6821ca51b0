"""Records of topics into Delta tables and lines: converters, transforms, deletes, and records that are bad."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.spark.connectors.files.opening import file_plan
from barnabas.spark.connectors.lake.opening import delta_plan
from barnabas.spark.connectors.option_rows import ConnectorOptions
from barnabas.spark.connectors.sinking.options import ROW_OPTIONS, parse_row_options
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId
from barnabas.spark.connectors.sinking.records import ROW, BadRecord, RecordReader
from barnabas.spark.connectors.sinking.tables import JsonTextDivider, TableDivider, table_of_topic
from barnabas.spark.connectors.sinking.writer import SinkPlan, stage_rows
from barnabas.spark.connectors.sql.sinks.opening import sqlite_plan
from barnabas.spark.errors import SinkError

QUERY = "6f1e3c8a-0000-4000-8000-000000000001"
JSON = {
    "key.converter": "JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def records(*rows: tuple[Any, Any], topic: str = "orders") -> Any:
    """Records as `format("barnabas")` gives them."""
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None if key is None else json.dumps(key).encode() for key, _ in rows], pa.binary()),
            "value": pa.array(
                [
                    value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
                    for _, value in rows
                ],
                pa.binary(),
            ),
            "topic": [topic] * len(rows),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
        }
    )


def reader(**given: str) -> RecordReader:
    texts = {**JSON, **{name.replace("_", "."): text for name, text in given.items()}}
    return RecordReader(parse_row_options(ConnectorOptions(texts, ROW_OPTIONS), texts, keyed=False))


def write(plan: SinkPlan, batch: int, *batches: Any) -> None:
    staged = stage_rows(iter(batches), plan, AttemptId(QUERY, "run", batch, 0, 0))
    plan.target.publish(BatchId(QUERY, batch), staged.parts)


def table_rows(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_keys_and_values_are_decoded_and_bad_ones_are_named() -> None:
    batch = records(({"id": 1}, {"n": 1}), ({"id": 2}, b"no JSON"), ({"id": 3}, None))
    decoded, bad = reader().read(batch)
    assert [row for each in decoded for row in each.column(ROW).to_pylist()] == [0, 2]
    assert [(each.row, each.stage) for each in bad] == [(1, "VALUE_CONVERTER")]


def test_values_of_several_schemas_are_batches_in_their_order() -> None:
    def envelope(*fields: tuple[str, str]) -> Any:
        schema = {"type": "struct", "fields": [{"field": name, "type": kind} for name, kind in fields]}
        return {"schema": schema, "payload": {name: 1 for name, _ in fields}}

    one, two = envelope(("a", "int64")), envelope(("a", "int64"), ("b", "int32"))
    batch = records((None, one), (None, two), (None, two), (None, one))
    decoded, bad = reader(value_converter_schemas_enable="true").read(batch)
    assert bad == []
    assert [each.column(ROW).to_pylist() for each in decoded] == [[0], [1, 2], [3]]


def test_records_that_a_transform_cannot_change_are_named() -> None:
    given = {"transforms": "c", "transforms_c_type": "Cast$Value", "transforms_c_spec": "n:int32"}
    decoded, bad = reader(**given).read(records((None, {"n": "7"}), (None, {"n": "x"}), (None, {"n": 9})))
    assert [json.loads(text) for each in decoded for text in each.column("value").to_pylist()] == [{"n": 7}, {"n": 9}]
    assert [(each.row, each.stage) for each in bad] == [(1, "TRANSFORMATION")]
    assert all(isinstance(each, BadRecord) and "Cast" in each.reason for each in bad)


def test_rows_without_records_are_refused() -> None:
    with pytest.raises(SinkError, match="they have no column topic"):
        reader().read(pa.RecordBatch.from_pydict({"value": [b"x"]}))


def test_records_are_merged_into_the_table_of_their_topic(tmp_path: Path) -> None:
    options = {
        **JSON,
        "path": f"{tmp_path}/${{topic}}",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "pk.fields": "id",
        "delete.enabled": "true",
    }
    plan = delta_plan(options)
    first = records(({"id": 1}, {"name": "a", "n": 1}), ({"id": 2}, {"name": "b", "n": 2}))
    write(plan, 0, first, records(({"id": 5}, {"x": 1.5}), topic="other"))
    write(plan, 1, records(({"id": 1}, {"n": 10}), ({"id": 2}, None), ({"id": 3}, {"name": "c"})))
    assert table_rows(tmp_path / "orders") == [{"id": 1, "name": "a", "n": 10}, {"id": 3, "name": "c", "n": None}]
    assert table_rows(tmp_path / "other") == [{"id": 5, "x": 1.5}]


def test_transforms_route_and_shape_records(tmp_path: Path) -> None:
    options = {
        **JSON,
        "path": f"{tmp_path}/${{topic}}",
        "transforms": "route,drop",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "lake_$1",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.drop.exclude": "secret",
    }
    write(delta_plan(options), 0, records((None, {"id": 1, "secret": "x"})))
    assert table_rows(tmp_path / "lake_orders") == [{"id": 1}]


def test_a_bad_record_stops_the_task_and_is_named(tmp_path: Path) -> None:
    plan = delta_plan({**JSON, "path": str(tmp_path / "t")})
    with pytest.raises(SinkError, match=r"orders-0 offset 1: .*errors\.tolerance=all"):
        write(plan, 0, records((None, {"id": 1}), (None, b"{")))


def test_bad_records_are_left_out_with_tolerance(tmp_path: Path) -> None:
    plan = delta_plan({**JSON, "path": str(tmp_path / "t"), "errors.tolerance": "all"})
    write(plan, 0, records((None, {"id": 1}), (None, b"{"), (None, None), (None, {"id": 2})))
    assert table_rows(tmp_path / "t") == [{"id": 1}, {"id": 2}]


def test_texts_of_records_are_the_lines_of_a_file(tmp_path: Path) -> None:
    plan = file_plan({"file": str(tmp_path / "out.txt"), "value.converter": "StringConverter"})
    write(plan, 0, records((None, b"one"), (None, b"two")))
    write(plan, 1, records((None, b"three")))
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\nthree\n"


NESTED: list[tuple[Any, Any]] = [
    ({"id": 1}, b'{"x":{"a":1,  "n":123456789012345678901234567890.10},"l":[{"a":1}],"m":{"a":1},"s":[1]}'),
    ({"id": 2}, b'{"x":{"b":"z"},"l":[1],"m":"text"}'),
    ({"id": 3}, b'{"x":{},"l":[[{"b":null}],[]],"m":null}'),
    ({"id": 4}, b'{"x":null}'),
    ({"id": 5}, b"null"),
    ({"id": 6}, None),
]


def divided(divider: type[TableDivider], *rows: tuple[Any, Any], **given: str) -> dict[int, dict[str, Any]]:
    """What is written for each id: a column that was not received is not there."""
    texts = {**JSON, "pk.mode": "record_key", "insert.mode": "upsert", "delete.enabled": "true", **given}
    options = parse_row_options(ConnectorOptions(texts, ROW_OPTIONS), texts)
    found = {}
    for each in RecordReader(options).read(records(*rows))[0]:
        for table in divider(options, 0).divide_records(each).tables:
            found |= {row["id"]: row for row in table.rows.to_pylist()}
    return found


def test_a_nested_object_has_no_members_of_other_rows() -> None:
    together = divided(JsonTextDivider, *NESTED)
    assert together[1] == {
        "id": 1,
        "x": '{"a":1,"n":123456789012345678901234567890.10}',
        "l": '[{"a":1}]',
        "m": '{"a":1}',
        "s": [1],
    }
    assert together[2] == {"id": 2, "x": '{"b":"z"}', "l": "[1]", "m": "text"}
    assert together[3] == {"id": 3, "x": "{}", "l": '[[{"b":null}],[]]', "m": None}
    assert together[4] == {"id": 4, "x": None}
    for row in (0, 2, 3):
        key = NESTED[row][0]["id"]
        assert divided(JsonTextDivider, NESTED[row])[key] == together[key]


def test_nested_objects_are_columns_of_json_also_in_keys() -> None:
    texts = {**JSON, "pk.mode": "record_key", "insert.mode": "upsert", "delete.enabled": "true"}
    options = parse_row_options(ConnectorOptions(texts, ROW_OPTIONS), texts)
    (batch,), _ = RecordReader(options).read(records(({"k": {"a": 1}}, {"x": {"a": 1}}), ({"k": {"b": 1}}, {"x": {}})))
    (table,) = JsonTextDivider(options, 0).divide_records(batch).tables
    assert [(field.name, field.type, field.metadata) for field in table.rows.schema] == [
        ("k", pa.string(), {b"barnabas.format": b"json"}),
        ("x", pa.string(), {b"barnabas.format": b"json"}),
    ]
    assert table.rows.to_pylist() == [{"k": '{"a":1}', "x": '{"a":1}'}, {"k": '{"b":1}', "x": "{}"}]


def test_a_lake_has_structs() -> None:
    found = divided(TableDivider, ({"id": 1}, {"x": {"a": 1}}), ({"id": 2}, {"x": {"b": "z"}}))
    assert found == {1: {"id": 1, "x": {"a": 1, "b": None}}, 2: {"id": 2, "x": {"a": None, "b": "z"}}}


def test_numbers_of_json_keep_all_of_their_digits() -> None:
    exact, short = "12345678901234567890.12", "0.1"
    rows = [({"id": n}, f'{{"v":{text}}}'.encode()) for n, text in enumerate((exact, short, "1e400", "7"))]
    assert {n: row["v"] for n, row in divided(JsonTextDivider, *rows).items()} == {
        0: exact,
        1: short,
        2: "1E+400",
        3: "7",
    }
    assert divided(JsonTextDivider, rows[1])[1]["v"] == 0.1
    assert divided(JsonTextDivider, ({"id": 1}, b'{"v":0.30000000000000004}'))[1]["v"] == 0.1 + 0.2


def test_a_text_of_json_without_a_schema_does_not_become_bytes(tmp_path: Path) -> None:
    """It may be bytes in base64, or any text: nothing says which."""
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, file BLOB, note TEXT)")
    options = {
        **JSON,
        "connection.url": f"jdbc:sqlite:{tmp_path}/t.db",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
    }
    plan = sqlite_plan(options)
    plan.target.prepare(None)
    write(plan, 0, records(({"id": 1}, {"note": "AQID"})))
    with pytest.raises(SinkError, match=r"the column file is BLOB, .* bytes are base64.*schemas\.enable=true"):
        write(plan, 1, records(({"id": 1}, {"file": "AQID"})))


def test_a_null_of_a_numeric_without_a_scale_is_written_into_a_lake(tmp_path: Path) -> None:
    """Its struct has fields that are required, and null if the struct is."""
    amount = {"type": "struct", "optional": True, "field": "amount", "fields": [
        {"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"},
    ]}  # fmt: skip
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, amount]}

    def event(amount: Any) -> Any:
        return {"schema": schema, "payload": {"id": 1 if amount else 2, "amount": amount}}

    options = {
        **JSON, "value.converter.schemas.enable": "true", "path": str(tmp_path / "t"), "insert.mode": "upsert",
        "pk.mode": "record_value", "pk.fields": "id",
    }  # fmt: skip
    write(delta_plan(options), 0, records((None, event({"scale": 1, "value": "Dw=="})), (None, event(None))))
    found = table_rows(tmp_path / "t")
    assert found == [{"id": 1, "amount": {"scale": 1, "value": b"\x0f"}}, {"id": 2, "amount": None}]


@pytest.mark.parametrize("topic", ["../../etc/cron.d/x", "..", "a/b", "a\\b"])
def test_a_topic_does_not_lead_out_of_the_folder_of_its_table(topic: str) -> None:
    assert table_of_topic("/lake/${topic}", "a.b") == "/lake/a.b"
    assert table_of_topic("/lake/t", topic) == "/lake/t"
    with pytest.raises(SinkError, match="a topic has no slashes"):
        table_of_topic("/lake/${topic}", topic)
