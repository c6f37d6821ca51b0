"""Converters by the options of Connect, and columns through them and back."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.arrow_fields import record_field, schema_of
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType, decimal_schema, struct_schema
from barnabas.spark.connectors.converters.errors import ConverterConfigError, ConverterDataError
from barnabas.spark.connectors.converters.json_converter import JsonConverter
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.converters.plain import ByteArrayConverter, StringConverter
from barnabas.spark.connectors.converters.runs import BadRows
from barnabas.spark.connectors.json_schemas import json_schema

PREFIX = "value.converter"


def make(given: str | None = None, **options: str) -> Any:
    config = {f"{PREFIX}.{name.replace('_', '.')}": text for name, text in options.items()}
    return make_converter(PREFIX, config if given is None else {PREFIX: given, **config}, is_key=False)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (None, JsonConverter),
        ("org.apache.kafka.connect.json.JsonConverter", JsonConverter),
        ("StringConverter", StringConverter),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", ByteArrayConverter),
    ],
)
def test_a_class_is_named_alone_or_with_its_package(given: str | None, kind: type) -> None:
    assert type(make(given)) is kind


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("JsonConvertor", {}, "did you mean JsonConverter"),
        ("com.example.Mine", {}, "the converters are"),
        (None, {"schemas_enabled": "true"}, "did you mean value.converter.schemas.enable"),
        (None, {"schemas_enable": "yes"}, "true or false"),
        (None, {"decimal_format": "TEXT"}, "BASE64 or NUMERIC"),
        (None, {"schema_content": "{"}, "schema.content is no schema"),
        (None, {"schema_content": '{"type":"int128"}'}, "schema.content is no schema"),
        ("StringConverter", {"converter_encoding": "latin1"}, "UTF8"),
        ("ByteArrayConverter", {"schemas_enable": "true"}, "no options"),
    ],
)
def test_a_wrong_option_is_refused(given: str | None, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConverterConfigError, match=message):
        make(given, **options)


SCHEMA = struct_schema(
    "a.Value",
    {
        "id": ConnectSchema(ConnectType.INT32),
        "name": ConnectSchema(ConnectType.STRING, True),
        "amount": decimal_schema(10, 2, optional=True),
        "tags": ConnectSchema(ConnectType.ARRAY, True, items=ConnectSchema(ConnectType.STRING, True)),
    },
    version=3,
)


def test_the_schema_survives_the_arrow_field() -> None:
    assert schema_of(record_field("value", SCHEMA)) == SCHEMA


@pytest.mark.parametrize("schemas", ["true", "false"])
def test_structs_become_json_with_or_without_their_schema(schemas: str) -> None:
    field = record_field("value", SCHEMA)
    rows = [{"id": 1, "name": 'a"', "amount": None, "tags": ["x", None]}, None, {"id": 2, "name": None, "tags": []}]
    column = pa.array(rows, field.type)
    converter = make(schemas_enable=schemas)
    encoded = converter.encode_column(column, field, None)
    payload = b'{"id":1,"name":"a\\"","amount":null,"tags":["x",null]}'
    first = encoded[0].as_py()
    assert first.endswith(b'"payload":' + payload + b"}") if schemas == "true" else first == payload
    assert encoded[1].as_py() is None
    if schemas == "true":
        (run,) = converter.decode_column(encoded, BadRows("value"))
        assert (run.rows.tolist(), run.values.to_pylist()) == ([0, 1, 2], column.to_pylist())
        assert schema_of(run.field) == SCHEMA


def test_strings_and_bytes_pass_and_structs_are_refused() -> None:
    column = pa.array(["a", None], pa.string())
    field = pa.field("value", pa.string())
    encoded = make("StringConverter").encode_column(column, field, None)
    assert encoded.to_pylist() == [b"a", None]
    (run,) = make("StringConverter").decode_column(encoded, BadRows("value"))
    assert run.values.to_pylist() == ["a", None]
    with pytest.raises(ConverterDataError, match="use JsonConverter"):
        make("StringConverter").encode_column(pa.array([{"a": 1}]), field, None)
    with pytest.raises(ConverterDataError, match="use JsonConverter"):
        make("ByteArrayConverter").encode_column(column, field, None)
    assert make("ByteArrayConverter").encode_column(encoded, field, None).to_pylist() == [b"a", None]


def test_a_text_that_is_not_utf8_is_a_bad_row() -> None:
    bad = BadRows("value", raises=False)
    (run,) = make("StringConverter").decode_column(pa.array([b"a", b"\xff"], pa.binary()), bad)
    assert (run.rows.tolist(), run.values.to_pylist(), list(bad.found)) == ([0], ["a"], [1])


LAYOUTS = [
    '{"schema":%s,"payload":%s}',
    '{"schema": %s, "payload": %s}',
    ' {"schema" :%s ,\n"payload" : %s\n} ',
    '{"payload": %s, "schema": %s}',
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_one_layout_are_read_whatever_spaces_they_have(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = 0
    original = JsonConverter._open

    def count(*arguments: Any) -> Any:
        nonlocal opened
        opened += 1
        return original(*arguments)

    monkeypatch.setattr(JsonConverter, "_open", count)
    schemas = [json.dumps(json_schema(kind)) for kind in (ConnectSchema(ConnectType.INT64, True), SCHEMA)]
    values: list[Any] = [1, None, 22, {"id": 1, "name": "}", "amount": None, "tags": ["{"]}]
    texts = []
    for value in values:
        parts = [schemas[isinstance(value, dict)], json.dumps(value)]
        texts.append((layout % tuple(parts if layout.index("schema") < 5 else parts[::-1])).encode())
    column = pa.array([texts[0], texts[3], texts[2], texts[1], None], pa.binary())
    runs = make(schemas_enable="true").decode_column(column, BadRows("value"))
    found = {row: value for run in runs for row, value in zip(run.rows.tolist(), run.values.to_pylist(), strict=True)}
    assert found == {0: 1, 1: values[3], 2: 22, 3: None, 4: None}
    assert opened == (2 if layout.index("schema") < 5 else 4)  # one row of each schema


@pytest.mark.parametrize("schema", ["null", '{"type":"int32"}', '{"type":"map","keys":{"type":"string"}}', "[]"])
@pytest.mark.parametrize("more", ['1,"x":2', '1,"payload":2', "1,2", "1}{", "", "1 2", '1,"":2', "1],[2"])
def test_an_envelope_has_two_fields_and_nothing_else(schema: str, more: str) -> None:
    if schema == "[]":
        schema = '{"type":"array","items":{"type":"int32"}}'
        good, more = "[1]", more.replace("1", "[1]", 1)
    elif "map" in schema:
        schema = schema.replace('"keys"', '"values":{"type":"int32"},"keys"')
        good, more = '{"a":1}', more.replace("1", '{"a":1}', 1)
    else:
        good = "7"
    texts = [f'{{"schema":{schema},"payload":{payload}}}'.encode() for payload in (good, more, good)]
    bad = BadRows("value", raises=False)
    (run,) = make(schemas_enable="true").decode_column(pa.array(texts, pa.binary()), bad)
    assert run.rows.tolist() == [0, 2]
    assert run.values[0] == run.values[1]
    assert list(bad.found) == [1]


def test_records_without_a_schema_have_that_of_schema_content() -> None:
    """Nulls stay nulls, a value of another type is bad, and what is written has the schema in it as ever."""
    schema = ConnectSchema(ConnectType.INT64)
    converter = make(schema_content=json.dumps(json_schema(schema)))
    bad = BadRows("value", raises=False)
    runs = converter.decode_column(pa.array([b"1", None, b'"text"', b" 3 "], pa.binary()), bad)
    found = {row: value for run in runs for row, value in zip(run.rows.tolist(), run.values.to_pylist(), strict=True)}
    assert found == {0: 1, 1: None, 3: 3}
    assert list(bad.found) == [2]
    written = converter.encode_column(pa.array([1], pa.int64()), record_field("value", schema), pa.array(["t"]))
    assert json.loads(written[0].as_py()) == {"schema": json_schema(schema), "payload": 1}


@pytest.mark.parametrize(
    "options",
    [
        {"schemas_enable": "true", "schema_content": '{"type":"int64"}'},
        {"schemas_enable": "false"},
    ],
)
def test_a_null_between_values_stays_in_their_run(options: dict[str, str]) -> None:
    """Runs are read one after the other, so a run of nulls at the end would delete keys that have newer values."""
    bad = BadRows("value", raises=False)
    runs = make("JsonConverter", **options).decode_column(pa.array([b"1", None, b"2"], pa.binary()), bad)
    assert not bad.found
    assert [run.rows.tolist() for run in runs] == [[0, 1, 2]]
