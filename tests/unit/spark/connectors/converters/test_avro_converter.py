"""Connect's AvroConverter: schemas as Confluent maps them, and columns through bytes and back."""

from __future__ import annotations

import decimal
import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.connect_values import RandomSchemas
from tests.unit.registry.memory_registry import MemoryRegistry

from barnabas.registry import Schema
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.http_client import RegistryUnreachableError
from barnabas.registry.values import SchemaType
from barnabas.spark.connectors.arrow_fields import record_field, schema_of
from barnabas.spark.connectors.connect_schemas import (
    DATE_NAME,
    TIMESTAMP_NAME,
    ConnectField,
    ConnectSchema,
    ConnectType,
    decimal_schema,
    struct_schema,
)
from barnabas.spark.connectors.converters import avro_converter
from barnabas.spark.connectors.converters.avro_parsing import load_numbers, schema_of_avro
from barnabas.spark.connectors.converters.avro_schemas import UNION, AvroForm, avro_of_schema
from barnabas.spark.connectors.converters.errors import (
    ConverterConfigError,
    ConverterDataError,
    ConverterRegistryError,
)
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.converters.runs import BadRows
from barnabas.spark.connectors.json_schemas import ConnectSchemaError

URL = {"schema.registry.url": "http://localhost:8081"}
ROW = struct_schema(
    "shop.Value", {"id": ConnectSchema(ConnectType.INT32), "s": ConnectSchema(ConnectType.STRING, True)}
)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    found = MemoryRegistry()
    monkeypatch.setattr(avro_converter, "registry_client", lambda access: found)
    return found


def make(part: str = "value", **options: str) -> Any:
    given = {**URL, **{name.replace("_", "."): text for name, text in options.items()}}
    config = {f"{part}.converter.{name}": text for name, text in given.items()}
    return make_converter(f"{part}.converter", {f"{part}.converter": "AvroConverter", **config}, is_key=part == "key")


def topics(*names: str) -> Any:
    return pa.array(names, pa.string())


def test_a_change_event_has_the_avro_schema_of_confluent() -> None:
    row = struct_schema(
        "shop.orders.Value",
        {
            "id": ConnectSchema(ConnectType.INT32),
            "small": ConnectSchema(ConnectType.INT16, default=0),
            "total": decimal_schema(10, 2, optional=True),
            "day": ConnectSchema(ConnectType.INT32, True, DATE_NAME, 1),
            "note": ConnectSchema(ConnectType.STRING, True, default="none"),
        },
        optional=True,
    )
    envelope = struct_schema("shop.orders.Envelope", {"before": row, "after": row}, version=2)
    found = json.dumps(avro_of_schema(envelope))
    assert json.loads(load_text(found)) == {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {
                "name": "before",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Value",
                        "fields": [
                            {"name": "id", "type": "int"},
                            {
                                "name": "small",
                                "type": {"type": "int", "connect.default": 0, "connect.type": "int16"},
                                "default": 0,
                            },
                            {
                                "name": "total",
                                "type": [
                                    "null",
                                    {
                                        "type": "bytes",
                                        "scale": 2,
                                        "precision": 10,
                                        "connect.version": 1,
                                        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                                        "connect.name": "org.apache.kafka.connect.data.Decimal",
                                        "logicalType": "decimal",
                                    },
                                ],
                                "default": None,
                            },
                            {
                                "name": "day",
                                "type": [
                                    "null",
                                    {
                                        "type": "int",
                                        "connect.version": 1,
                                        "connect.name": "org.apache.kafka.connect.data.Date",
                                        "logicalType": "date",
                                    },
                                ],
                                "default": None,
                            },
                            {
                                "name": "note",
                                "type": [{"type": "string", "connect.default": "none"}, "null"],
                                "default": "none",
                            },
                        ],
                        "connect.name": "shop.orders.Value",
                    },
                ],
                "default": None,
            },
            {"name": "after", "type": ["null", "Value"], "default": None},
        ],
        "connect.version": 2,
        "connect.name": "shop.orders.Envelope",
    }
    back = schema_of_avro(load_numbers(found))
    small = back.fields[0].schema.fields[1].schema
    assert (small.type, small.default) == (ConnectType.INT16, 0)
    assert schema_of_avro(load_numbers(found)).fields[1].schema == row


def load_text(text: str) -> str:
    from barnabas.registry.formats.avro import parse_avro

    return parse_avro(text).canonical


@pytest.mark.parametrize("seed", range(40))
def test_random_values_are_read_as_they_were_written(registry: MemoryRegistry, seed: int) -> None:
    rng = RandomSchemas(random.Random(seed))
    schema = rng.struct()
    field = record_field("value", schema)
    rows = [rng.value(schema) for _ in range(5)] + [None]
    column = pa.array(rows, field.type)
    converter = make()
    encoded = converter.encode_column(column, field, topics(*["t"] * 6))
    (run,) = converter.decode_column(encoded, BadRows("value"))
    assert run.rows.tolist() == list(range(6))
    assert run.values.to_pylist() == column.to_pylist()
    assert schema_of(run.field) == schema
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(json.loads(registry.registered[0].schema.text), named_schemas=named)
    for value in encoded.to_pylist()[:5]:
        fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)  # the bytes are Avro to others, too


def test_a_named_struct_twice_must_be_the_same() -> None:
    one = struct_schema("a.B", {"x": ConnectSchema(ConnectType.INT32)})
    other = struct_schema("a.B", {"x": ConnectSchema(ConnectType.STRING)})
    with pytest.raises(ConnectSchemaError, match=r"two structs have the name a\.B"):
        avro_of_schema(struct_schema("a.C", {"one": one, "other": other}))


def test_without_metadata_only_avro_is_left() -> None:
    row = struct_schema("a.V", {"n": ConnectSchema(ConnectType.INT8, doc="d"), "d": decimal_schema(4, 1)}, version=3)
    assert avro_of_schema(row, AvroForm(metadata=False)) == {
        "type": "record",
        "name": "V",
        "namespace": "a",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "d", "type": {"type": "bytes", "scale": 1, "precision": 4, "logicalType": "decimal"}},
        ],
    }


def test_an_enum_is_text_and_with_enhanced_support_an_enum_again(registry: MemoryRegistry) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}}]}'
    schema = schema_of_avro(load_numbers(text))
    enum = schema.fields[0].schema
    assert (enum.type, enum.name) == (ConnectType.STRING, "E")
    assert [symbol for key, symbol in enum.parameters.items() if key.endswith((".A", ".B"))] == ["A", "B"]
    assert avro_of_schema(schema)["fields"][0]["type"]["type"] == "string"
    field = record_field("value", schema)
    converter = make(enhanced_avro_schema_support="true")
    encoded = converter.encode_column(pa.array([{"e": "B"}], field.type), field, topics("t"))
    assert encoded[0].as_py()[5:] == b"\x02"


def test_a_union_is_a_struct_of_its_types(registry: MemoryRegistry) -> None:
    text = (
        '{"type":"record","name":"a.R","fields":[{"name":"u","type":["null","int","long",{"type":"record",'
        '"name":"N","fields":[{"name":"x","type":"string"}]}]},{"name":"l","type":{"type":"array","items":"long"}}]}'
    )
    schema = schema_of_avro(load_numbers(text))
    union = schema.fields[0].schema
    assert (union.name, union.optional) == (UNION, True)
    assert [part.name for part in union.fields] == ["int", "long", "N"]
    field = record_field("value", schema)
    rows = [
        {"u": {"int": None, "long": 5, "N": None}, "l": [1]},
        {"u": None, "l": []},
        {"u": {"int": None, "long": None, "N": {"x": "é"}}, "l": [2, 3]},
    ]
    converter = make()
    encoded = converter.encode_column(pa.array(rows, field.type), field, topics("t", "t", "t"))
    assert encoded[0].as_py()[5:] == b"\x04\x0a\x02\x02\x00"
    (run,) = converter.decode_column(encoded, BadRows("value"))
    assert run.values.to_pylist() == rows


def test_a_null_with_a_default_is_written_as_the_default(registry: MemoryRegistry) -> None:
    schema = struct_schema("a.R", {"n": ConnectSchema(ConnectType.INT32, True, default=7)})
    field = record_field("value", schema)
    column = pa.array([{"n": None}, {"n": 1}], field.type)
    for options, expected in (({}, [7, 1]), ({"ignore_default_for_nullables": "true"}, [None, 1])):
        converter = make(**options)
        (run,) = converter.decode_column(converter.encode_column(column, field, topics("t", "t")), BadRows("value"))
        assert [row["n"] for row in run.values.to_pylist()] == expected


def test_a_null_in_a_required_field_is_refused(registry: MemoryRegistry) -> None:
    field = record_field("value", ROW)
    with pytest.raises(ConverterDataError, match="row 1 has a null in a field of type int32 that is required"):
        make().encode_column(
            pa.array([{"id": 1, "s": None}, {"id": None, "s": "x"}], field.type), field, topics("t", "t")
        )


@pytest.mark.parametrize(
    ("options", "subjects"),
    [
        ({}, ["one-value", "two-value"]),
        ({"value_subject_name_strategy": "RecordNameStrategy"}, ["shop.Value"]),
        (
            {"value_subject_name_strategy": "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"},
            ["one-shop.Value", "two-shop.Value"],
        ),
    ],
)
def test_each_topic_has_its_subject(registry: MemoryRegistry, options: dict[str, str], subjects: list[str]) -> None:
    field = record_field("value", ROW)
    rows = [{"id": 1, "s": "a"}, None, {"id": 2, "s": None}, {"id": 3, "s": "c"}]
    converter = make(**options)
    encoded = converter.encode_column(pa.array(rows, field.type), field, topics("one", "never", "two", "one"))
    assert [one.subject for one in registry.registered] == subjects
    runs = converter.decode_column(encoded, BadRows("value"))
    found = dict(pair for run in runs for pair in zip(run.rows.tolist(), run.values.to_pylist(), strict=True))
    assert [found[row] for row in range(4)] == rows


def test_the_latest_version_writes_fields_by_name(registry: MemoryRegistry) -> None:
    fields = [
        {"name": "more", "type": "long", "default": 9},
        {"name": "s", "type": ["null", "string"]},
        {"name": "id", "type": "long"},
    ]
    latest = {"type": "record", "name": "Value", "namespace": "shop", "fields": fields}
    registry.register("t-value", Schema(json.dumps(latest)))
    field = record_field("value", ROW)
    column = pa.array([{"id": 1, "s": "a"}], field.type)
    converter = make(use_latest_version="true")
    (run,) = converter.decode_column(converter.encode_column(column, field, topics("t")), BadRows("value"))
    assert run.values.to_pylist() == [{"more": 9, "s": "a", "id": 1}]
    assert len(registry.registered) == 1
    registry.register("t-value", Schema(json.dumps({**latest, "fields": fields[2:]})))
    with pytest.raises(ConverterDataError, match="version 2 of t-value has no field s"):
        make(use_latest_version="true").encode_column(column, field, topics("t"))
    loose = make(use_latest_version="true", latest_compatibility_strict="false")
    (run,) = loose.decode_column(loose.encode_column(column, field, topics("t")), BadRows("value"))
    assert run.values.to_pylist() == [{"id": 1}]


def test_rows_that_are_not_avro_are_bad(registry: MemoryRegistry) -> None:
    field = record_field("value", ROW)
    converter = make()
    (good,) = converter.encode_column(pa.array([{"id": 1, "s": "ab"}], field.type), field, topics("t")).to_pylist()
    registry.register("j", Schema("{}", SchemaType.JSON))
    rows = [good, b"{}", good[:-1], b"\x00\x00\x00\x00\x63x", b"\x00\x00\x00\x00\x02x", good[:-1] + b"\xff", None, good]
    bad = BadRows("value", raises=False)
    (run,) = converter.decode_column(pa.array(rows, pa.binary()), bad)
    assert (run.rows.tolist(), run.values.to_pylist()[-1]) == ([0, 6, 7], {"id": 1, "s": "ab"})
    assert {row: text[:30] for row, text in bad.found.items()} == {
        1: "it does not begin with 0 and t",
        2: bad.found[2][:30],
        3: "the registry has no schema wit",
        4: "it was written with the JSON s",
        5: "a text is not UTF-8: 'utf-8' c",
    }


def test_a_map_with_a_huge_count_is_a_bad_row(registry: MemoryRegistry) -> None:
    union = {"type": "array", "items": ["int", "string"]}
    number = registry.register("t", Schema(json.dumps(union))).id
    bad = BadRows("value", raises=False)
    huge = bytes([0, 0, 0, 0, number]) + b"\xfe\xff\xff\xff\xff\x0f"
    assert make().decode_column(pa.array([huge], pa.binary()), bad) == []
    assert "more than the value has bytes" in bad.found[0]


def test_a_record_in_itself_has_no_column(registry: MemoryRegistry) -> None:
    text = '{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}'
    number = registry.register("t", Schema(text)).id
    bad = BadRows("value", raises=False)
    make().decode_column(pa.array([bytes([0, 0, 0, 0, number, 0])], pa.binary()), bad)
    assert "contains itself" in bad.found[0]


def test_a_long_decimal_that_the_column_cannot_hold_is_a_bad_row(registry: MemoryRegistry) -> None:
    text = '{"type":"bytes","logicalType":"decimal","precision":4,"scale":1}'
    number = registry.register("t", Schema(text)).id
    start = bytes([0, 0, 0, 0, number])
    bad = BadRows("value", raises=False)
    rows = [start + b"\x02\x0f", start + b"\x14" + b"\x7f" * 10]
    (run,) = make().decode_column(pa.array(rows, pa.binary()), bad)
    assert (run.values.to_pylist(), list(bad.found)) == ([decimal.Decimal("1.5")], [1])


def test_the_registry_stops_the_query_if_it_refuses_or_is_away(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = record_field("value", ROW)
    column = pa.array([{"id": 1, "s": None}], field.type)

    def refuse(*_: Any, **__: Any) -> Any:
        raise RegistryError(Code.INCOMPATIBLE_SCHEMA, "not compatible")

    def away(*_: Any, **__: Any) -> Any:
        raise RegistryUnreachableError("no registry answers")

    monkeypatch.setattr(registry, "register", refuse)
    with pytest.raises(ConverterRegistryError, match=r"Subject t-value; set auto\.register\.schemas"):
        make().encode_column(column, field, topics("t"))
    monkeypatch.setattr(registry, "register", away)
    with pytest.raises(ConverterRegistryError, match="no registry answers"):
        make().encode_column(column, field, topics("t"))
    monkeypatch.setattr(registry, "schema", away)
    with pytest.raises(ConverterRegistryError, match="no registry answers"):
        make().decode_column(pa.array([b"\x00\x00\x00\x00\x01\x00"], pa.binary()), BadRows("value", raises=False))


def test_names_that_avro_does_not_have_are_refused_or_scrubbed(registry: MemoryRegistry) -> None:
    schema = struct_schema("my-topic.Value", {"a-b": ConnectSchema(ConnectType.INT32)})
    field = record_field("value", schema)
    column = pa.array([{"a-b": 1}], field.type)
    with pytest.raises(ConverterDataError, match=r"schema\.name\.adjustment\.mode=avro or scrub\.invalid\.names=true"):
        make().encode_column(column, field, topics("t"))
    converter = make(scrub_invalid_names="true")
    (run,) = converter.decode_column(converter.encode_column(column, field, topics("t")), BadRows("value"))
    assert (run.values.to_pylist(), schema_of(run.field).name) == ([{"a_b": 1}], "my-topic.Value")


def test_values_without_a_schema_are_refused(registry: MemoryRegistry) -> None:
    from barnabas.spark.connectors.converters.runs import json_field

    with pytest.raises(ConverterDataError, match="the value is JSON without one"):
        make().encode_column(pa.array(["{}"]), json_field("value"), topics("t"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema_registry_url": ""}, "needs the schema registry's address"),
        ({"basic_auth_credentials_source": "SASL_INHERIT"}, "needs the user of the Kafka client"),
        ({"basic_auth_credentials_source": "OTHER"}, "USER_INFO, URL or SASL_INHERIT"),
        ({"basic_auth_credentials_source": "USER_INFO"}, "basic.auth.user.info is missing"),
        ({"value_subject_name_strategy": "com.example.Mine"}, "must be one of TopicNameStrategy"),
        ({"auto_register_schema": "false"}, "did you mean value.converter.auto.register.schemas"),
        ({"connect_meta_data": "maybe"}, "true or false"),
    ],
)
def test_a_wrong_option_of_avro_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConverterConfigError, match=message):
        make(**options)


def test_plain_keys_and_lists_of_maps_pass(registry: MemoryRegistry) -> None:
    field = record_field("key", ConnectSchema(ConnectType.INT64, name=TIMESTAMP_NAME, version=1))
    converter = make("key")
    column = pa.array([1_700_000_000_123, None], pa.timestamp("ms", "UTC"))
    (run,) = converter.decode_column(converter.encode_column(column, field, topics("t", "t")), BadRows("key"))
    assert (run.values, registry.registered[0].subject) == (column, "t-key")
    text = ConnectSchema(ConnectType.STRING)
    entries = ConnectSchema(ConnectType.MAP, keys=ConnectSchema(ConnectType.INT32), items=text)
    twice = ConnectSchema(
        ConnectType.STRUCT, fields=(ConnectField("one", entries), ConnectField("other", entries)), name="a.Twice"
    )
    field = record_field("value", twice)
    column = pa.array([{"one": [(1, "a")], "other": []}], field.type)
    converter = make()
    (run,) = converter.decode_column(converter.encode_column(column, field, topics("t")), BadRows("value"))
    assert (run.values.to_pylist(), schema_of(run.field)) == (column.to_pylist(), twice)
