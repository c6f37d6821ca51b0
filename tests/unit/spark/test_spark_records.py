"""Typed keys and values without Spark: types, decoding, bad rows, dead letters."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest

from barnabas.core.ids import TopicPartition
from barnabas.registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    RegisteredSchema,
    Schema,
    SchemaType,
)
from barnabas.registry.compatibility import check
from barnabas.registry.formats.json_schema import parse_json_schema
from barnabas.registry.values import Compatibility
from barnabas.spark.errors import OptionError, RecordError, SchemaChangedError, SinkError
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.records import decoding, encoding, options, registries
from barnabas.spark.records.avro_schemas import avro_schema_of
from barnabas.spark.records.dead_letters import TaskIdentity, count_letters, letters
from barnabas.spark.records.decoding import PartDecoder
from barnabas.spark.records.encoding import encode_records
from barnabas.spark.records.formats import PartFormat, RecordFormat, RecordFormats
from barnabas.spark.records.inference import column_types, pin_schemas
from barnabas.spark.records.json_types import arrow_of_json_schema, json_schema_of
from barnabas.spark.records.options import parse_formats
from barnabas.spark.records.reading import BadRecords, typed_batches
from barnabas.spark.records.typed_read import TypedRead
from barnabas.spark.records.types import conform, spark_arrow, spark_ddl
from barnabas.spark.sink.options import SinkOptions
from barnabas.spark.sink.rows import RowLayout
from barnabas.spark.sink.tasks import encoded

T0 = TopicPartition("orders", 0)
NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
URL = "http://registry:8081"
ORDER_1 = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": "string", "default": "-"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        ],
    }
)
ORDER_2 = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": "double", "default": 0.0}],
    }
)


NULLABLE = avro_schema_of(pa.struct([pa.field("id", pa.int64()), pa.field("total", pa.float64())]), "r")


class FakeRegistry:
    """A registry in memory."""

    def __init__(self) -> None:
        self.versions: dict[str, list[RegisteredSchema]] = {}
        self.by_id: dict[int, Schema] = {}

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        known = self.versions.setdefault(subject, [])
        for one in known:
            if one.schema.text == schema.text:
                return one
        made = RegisteredSchema(subject, len(known) + 1, len(self.by_id) + 1, schema)
        known.append(made)
        self.by_id[made.id] = schema
        return made

    def latest(self, subject: str) -> RegisteredSchema:
        from barnabas.registry.errors import subject_not_found

        if subject not in self.versions:
            raise subject_not_found(subject)
        return self.versions[subject][-1]

    def version(self, subject: str, version: int) -> RegisteredSchema:
        return self.versions[subject][version - 1]

    def schema(self, schema_id: int, *, subject: str = "") -> Schema:
        return self.by_id[schema_id]

    def dependencies(self, schema: Schema) -> dict[str, Schema]:
        return {}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    fake = FakeRegistry()
    monkeypatch.setattr(registries, "registry_client", lambda access: fake)
    monkeypatch.setattr(decoding, "registry_client", lambda access: fake)
    monkeypatch.setattr(encoding, "registry_client", lambda access: fake)
    monkeypatch.setattr(encoding, "_encoders", {})
    return fake


def formats(**given: str) -> RecordFormats:
    return parse_formats(GivenOptions({name.replace("_", "."): value for name, value in given.items()}))


def decoder(found: RecordFormats, pinned: RegisteredSchema | None, target: Any) -> PartDecoder:
    return PartDecoder(found.value, found, pinned, target)


# -- options


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"valueFormat": "avor"}, "did you mean avro"),
        ({"valueFormat": "avro"}, "give schema.registry.url, or valueSchema"),
        ({"valueSchema": "id INT"}, "valueSchema has no effect with valueFormat=raw"),
        ({"valueFormat": "json", "valueSubject": "s"}, "valueSubject has no effect with valueFormat=json"),
        ({"errors.tolerance": "all"}, "errors.tolerance has no effect on raw records"),
        ({"valueFormat": "string", "errors.deadletterqueue.topic.name": "bad"}, "needs errors.tolerance=all"),
        ({"valueFormat": "string", "auto.register.schemas": "true"}, "given without schema.registry.url"),
        ({"valueFormat": "avro", "schema.registry.url": URL, "valueMessage": "m"}, "valueMessage is for"),
        ({"valueFormat": "avro", "schema.registry.url": URL, "basic.auth.user.info": "me"}, "must be user:password"),
        ({"valueFormat": "avro", "schema.registry.url": URL, "valueSchemaVersion": "new"}, "must be latest or"),
    ],
)
def test_options_that_make_no_sense_are_rejected(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_formats(GivenOptions(given))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "find_spec", lambda module: None if module == "fastavro" else object())
    with pytest.raises(
        OptionError, match=r"valueFormat=string needs packages .* pip install 'barnabas\[spark,registry\]'"
    ):
        formats(valueFormat="string")
    assert formats().typed == ()


def test_a_password_is_not_shown() -> None:
    found = formats(valueFormat="avro", schema_registry_url=URL, basic_auth_user_info="me:secret")
    assert found.registry is not None
    assert found.registry.login.user_info == "me:secret"
    assert "secret" not in repr(found)


# -- types


def test_types_of_spark() -> None:
    kind = pa.struct(
        [
            pa.field("a", pa.uint32()),
            pa.field("b", pa.list_(pa.timestamp("ms", "UTC"))),
            pa.field("c`d", pa.map_(pa.string(), pa.decimal128(9, 2))),
            pa.field("e", pa.time64("us")),
            pa.field("f", pa.binary(16)),
            pa.field("g", pa.timestamp("ns")),
        ]
    )
    assert spark_ddl(kind) == (
        "struct<`a`: bigint, `b`: array<timestamp>, `c``d`: map<string, decimal(9,2)>, `e`: bigint, `f`: binary,"
        " `g`: timestamp_ntz>"
    )
    with pytest.raises(ValueError, match="no type for decimal256"):
        spark_ddl(pa.decimal256(50, 1))


def test_columns_conform_to_the_type_of_spark() -> None:
    kind = pa.struct(
        [
            pa.field("n", pa.uint64()),
            pa.field("at", pa.list_(pa.timestamp("ns", "UTC"))),
            pa.field("m", pa.map_(pa.string(), pa.struct([pa.field("x", pa.time32("ms"))]))),
            pa.field("extra", pa.int8()),
        ]
    )
    rows = [
        {"n": 2**64 - 1, "at": [NEW_YEAR], "m": [("k", {"x": None})], "extra": 1},
        None,
        {"n": None, "at": [], "m": None, "extra": None},
    ]
    target = pa.struct([*list(spark_arrow(kind))[:3], pa.field("missing", pa.string())])
    column = conform(pa.concat_arrays([pa.array(rows[:1], kind), pa.array(rows, kind)]).slice(1), target)
    assert column.type == target
    column.validate(full=True)
    assert column.to_pylist() == [
        {
            "n": decimal.Decimal(2**64 - 1),
            "at": [NEW_YEAR],
            "m": [("k", {"x": None})],
            "missing": None,
        },
        None,
        {"n": None, "at": [], "m": None, "missing": None},
    ]


def test_json_schema_as_a_type_and_back() -> None:
    text = json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "note": {"type": ["string", "null"]},
                "at": {"$ref": "#/definitions/place"},
                "tags": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]},
                "more": {"type": "object", "additionalProperties": {"type": "number"}},
            },
            "definitions": {"place": {"properties": {"x": {"type": "number"}}}},
        }
    )
    kind = arrow_of_json_schema(text)
    assert spark_ddl(kind) == (
        "struct<`id`: bigint, `note`: string, `at`: struct<`x`: double>, `tags`: array<string>,"
        " `more`: map<string, double>>"
    )
    assert arrow_of_json_schema(json_schema_of(kind, "Order")) == kind
    with pytest.raises(ValueError, match="the schema/properties/a has several alternatives"):
        arrow_of_json_schema('{"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}')
    with pytest.raises(ValueError, match="contains itself"):
        arrow_of_json_schema('{"properties": {"a": {"$ref": "#"}}}')


HOLDERS = pa.struct(
    [
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
        pa.field("places", pa.list_(pa.struct([pa.field("x", pa.float64())]))),
        pa.field("grid", pa.list_(pa.map_(pa.string(), pa.list_(pa.bool_())))),
        pa.field("names", pa.list_(pa.field("element", pa.string(), nullable=False))),
    ]
)


def test_a_json_schema_of_columns_allows_the_nulls_that_are_written(registry: FakeRegistry) -> None:
    row = {
        "counts": [("a", 1), ("b", None)],
        "places": [{"x": 1.5}, {"x": None}, None],
        "grid": [None, [("k", [True, None]), ("l", None)]],
        "names": ["n"],
    }
    column = pa.array([row, None, dict.fromkeys(row)], HOLDERS)
    found = formats(valueFormat="json-schema", schema_registry_url=URL, auto_register_schemas="true")
    values = encode_records(pa.table({"value": column}), found, "orders").column("value").to_pylist()
    reader = JsonDeserializer(registry)  # type: ignore[arg-type]
    assert [reader.deserialize("orders", (), value) for value in values] == [
        {
            "counts": {"a": 1, "b": None},
            "places": [{"x": 1.5}, {}, None],
            "grid": [None, {"k": [True, None], "l": None}],
            "names": ["n"],
        },
        None,
        {},
    ]
    schema = json.loads(registry.latest("orders-value").schema.text)
    assert schema["properties"]["names"]["items"] == {"type": "string"}  # its type has no nulls


def test_a_json_schema_that_allows_nulls_is_a_compatible_version_of_one_that_did_not() -> None:
    def without(part: Any) -> Any:
        if isinstance(part, dict):
            return without(part["oneOf"][1]) if "oneOf" in part else {name: without(one) for name, one in part.items()}
        return part

    text = json_schema_of(HOLDERS, "Order")
    before = json.dumps(without(json.loads(text)))
    assert before != text
    new, old = parse_json_schema(text), parse_json_schema(before)
    assert check(Compatibility.BACKWARD, new, [old]) == []
    assert check(Compatibility.BACKWARD, old, [new]) != []
    assert spark_ddl(arrow_of_json_schema(text)) == spark_ddl(arrow_of_json_schema(before))


def test_an_avro_schema_of_columns_reads_them_back(registry: FakeRegistry) -> None:
    kind = pa.struct([pa.field("id", pa.int64()), pa.field("at", pa.struct([pa.field("x", pa.date32())]))])
    found = formats(valueFormat="avro", valueSchema=avro_schema_of(kind, "orders-value"))
    assert column_types(found, ("value",), pin_schemas(found, ("value",), ())) == {
        "value": "struct<`id`: bigint, `at`: struct<`x`: date>>"
    }
    with pytest.raises(ValueError, match="not a name in Avro"):
        avro_schema_of(pa.struct([pa.field("a b", pa.int8())]), "r")


# -- decoding


def test_strings_and_those_that_are_not_utf_8() -> None:
    part = decoder(formats(valueFormat="string"), None, pa.string())
    values, failures = part.decode(pa.array([b"a", None, b"\xff", b"\xc3\xa9"], pa.binary()), "t")
    assert values.to_pylist() == ["a", None, None, "é"]
    assert list(failures) == [2]


@pytest.mark.parametrize("extra", [[], [pa.field("m", pa.map_(pa.string(), pa.date32()))]])
def test_plain_json_by_the_type_of_the_column(extra: list[pa.Field]) -> None:
    kind = pa.struct([pa.field("id", pa.int64()), pa.field("name", pa.string()), *extra])
    part = decoder(formats(valueFormat="json", valueSchema="id BIGINT, name STRING"), None, kind)
    rows = [b'{"id": 1, "name": "a", "other": 2}', None, b"{", b'{"id": "x"}', b'{"name": null}']
    values, failures = part.decode(pa.array(rows, pa.binary()), "t")
    assert values.type == kind
    more = {"m": None} if extra else {}
    assert values.to_pylist() == [
        {"id": 1, "name": "a", **more},
        None,
        None,
        None,
        {"id": None, "name": None, **more},
    ]
    assert sorted(failures) == [2, 3]


def test_json_of_another_shape_says_what_it_is_not() -> None:
    dates = pa.struct([pa.field("by_name", pa.map_(pa.string(), pa.date32())), pa.field("all", pa.list_(pa.date32()))])
    part = decoder(formats(valueFormat="json", valueSchema="all ARRAY<DATE>"), None, dates)
    rows = [b"[1]", b'{"by_name": 5}', b'{"all": "2026-01-01"}', b'{"all": ["2026-01-01"]}']
    _, failures = part.decode(pa.array(rows, pa.binary()), "t")
    assert failures == {0: "[1] is not an object", 1: "5 is not an object", 2: '"2026-01-01" is not an array'}


def test_avro_of_several_versions_has_the_type_of_the_latest(registry: FakeRegistry) -> None:
    found = formats(valueFormat="avro", schema_registry_url=URL)
    old = AvroSerializer(registry, ORDER_1)  # type: ignore[arg-type]
    rows = [old.serialize("orders", (), {"id": 1, "note": "a", "at": None})]
    new = AvroSerializer(registry, ORDER_2)  # type: ignore[arg-type]
    rows += [new.serialize("orders", (), {"id": 2, "total": 2.5}), None, b"plain", rows[0][:6]]
    pinned = pin_schemas(found, ("value",), ("orders",))
    assert (pinned["value"].version, pinned["value"].subject) == (2, "orders-value")
    assert column_types(found, ("value",), pinned) == {"value": "struct<`id`: bigint, `total`: double>"}
    kind = pa.struct([pa.field("id", pa.int64()), pa.field("total", pa.float64())])
    values, failures = decoder(found, pinned["value"], kind).decode(pa.array(rows, pa.binary()), "orders")
    assert values.to_pylist() == [{"id": 1, "total": 0.0}, {"id": 2, "total": 2.5}, None, None, None]
    assert sorted(failures) == [3, 4]
    first = formats(valueFormat="avro", schema_registry_url=URL, valueSchemaVersion="1")
    assert pin_schemas(first, ("value",), ("orders",))["value"].version == 1


def test_what_happens_to_a_record_of_a_newer_schema(registry: FakeRegistry) -> None:
    old, new = AvroSerializer(registry, ORDER_1), AvroSerializer(registry, ORDER_2)  # type: ignore[arg-type]
    one = old.serialize("orders", (), {"id": 1, "note": "a"})
    kind = pa.struct([pa.field("id", pa.int64())])
    read = {}
    for evolution in ("ignore", "restart", "fail"):
        found = formats(valueFormat="avro", schema_registry_url=URL, schema_evolution=evolution)
        read[evolution] = decoder(found, pin_schemas(found, ("value",), ("orders",))["value"], kind)
    elsewhere = AvroSerializer(registry, ORDER_2).serialize("other", (), {"id": 3, "total": 1.0})  # type: ignore[arg-type]
    column = pa.array([one, elsewhere], pa.binary())
    for evolution in ("ignore", "restart"):  # no newer version of the subject: a restart would change nothing
        assert read[evolution].decode(column, "orders")[0].to_pylist() == [{"id": 1}, {"id": 3}]
    with pytest.raises(SchemaChangedError, match=r"schema id 2.*version 1 of orders-value.*schema\.evolution is fail"):
        read["fail"].decode(column, "orders")
    column = pa.array([new.serialize("orders", (), {"id": 2, "total": 1.0})], pa.binary())
    assert read["ignore"].decode(column, "orders")[0].to_pylist() == [{"id": 2}]
    with pytest.raises(SchemaChangedError, match=r"version 2 is registered\. Start the query again"):
        read["restart"].decode(column, "orders")


def test_json_schema_through_a_registry(registry: FakeRegistry) -> None:
    found = formats(valueFormat="json-schema", schema_registry_url=URL)
    schema = json_schema_of(pa.struct([pa.field("id", pa.int64())]), "Order")
    row = JsonSerializer(registry, schema).serialize("orders", (), {"id": 7})  # type: ignore[arg-type]
    pinned = pin_schemas(found, ("value",), ("orders",))
    kind = pa.struct([pa.field("id", pa.int64())])
    column = pa.array([row, b'{"id": 1}'], pa.binary())
    values, failures = decoder(found, pinned["value"], kind).decode(column, "orders")
    assert (values.to_pylist(), list(failures)) == ([{"id": 7}, None], [1])


def test_protobuf_by_the_pinned_message(registry: FakeRegistry) -> None:
    text = 'syntax = "proto3";\nmessage Order { int64 id = 1; string note = 2; }\nmessage Other { int64 x = 1; }\n'
    registered = registry.register("orders-value", Schema(text, SchemaType.PROTOBUF))
    found = formats(valueFormat="protobuf", schema_registry_url=URL)
    pinned = pin_schemas(found, ("value",), ("orders",))
    assert column_types(found, ("value",), pinned) == {"value": "struct<`id`: bigint, `note`: string>"}
    header = bytes([0, 0, 0, 0, registered.id])
    rows = [header + b"\0" + b"\x08\x05\x12\x01n", header + bytes([2, 2]) + b"\x08\x05", None]
    kind = pa.struct([pa.field("id", pa.int64()), pa.field("note", pa.string())])
    values, failures = decoder(found, pinned["value"], kind).decode(pa.array(rows, pa.binary()), "orders")
    assert values.to_pylist() == [{"id": 5, "note": "n"}, None, None]
    assert failures == {1: "the message is a Other, but the column has Order"}
    named = formats(valueFormat="protobuf", schema_registry_url=URL, valueMessage="Nothing")
    with pytest.raises(OptionError, match="is not a message of the schema, which has Order, Other"):
        column_types(named, ("value",), pinned)


def test_avro_without_a_registry(registry: FakeRegistry) -> None:
    found = formats(valueFormat="avro", valueSchema=ORDER_2)
    pinned = pin_schemas(found, ("value",), ("a", "b"))
    framed = AvroSerializer(registry, ORDER_2).serialize("orders", (), {"id": 2, "total": 2.5})  # type: ignore[arg-type]
    assert framed is not None
    kind = pa.struct([pa.field("id", pa.int64()), pa.field("total", pa.float64())])
    values, failures = decoder(found, pinned["value"], kind).decode(pa.array([framed[5:], None], pa.binary()), "a")
    assert (values.to_pylist(), failures) == ([{"id": 2, "total": 2.5}, None], {})


def test_a_subject_that_cannot_be_found_is_explained(registry: FakeRegistry) -> None:
    found = formats(valueFormat="avro", schema_registry_url=URL)
    with pytest.raises(OptionError, match="needs the option valueSubject: the query may read several topics"):
        pin_schemas(found, ("value",), ("a", "b"))
    with pytest.raises(OptionError, match="no subject orders-value: register the schema, or name it"):
        pin_schemas(found, ("value",), ("orders",))
    assert pin_schemas(found, ("key",), ("a", "b")) == {}
    registry.register("orders-value", Schema("{}", SchemaType.JSON))
    with pytest.raises(OptionError, match="has schemas of type JSON, but valueFormat is avro"):
        pin_schemas(found, ("value",), ("orders",))


# -- encoding


def written(values: list[Any], kind: Any, topic: str = "orders", **options: str) -> list[bytes | None]:
    found = formats(**options)
    table = encode_records(pa.table({"value": pa.array(values, kind)}), found, topic)
    result: list[bytes | None] = table["value"].to_pylist()
    return result


TWO_FIELDS = pa.struct([pa.field("id", pa.int64()), pa.field("total", pa.float64())])


def test_rows_are_written_with_the_latest_version_of_the_subject(registry: FakeRegistry) -> None:
    registered = registry.register("orders-value", Schema(ORDER_2))
    options = {"valueFormat": "avro", "schema_registry_url": URL}
    rows = written([{"id": 2, "total": 2.5}, None], TWO_FIELDS, **options)
    assert AvroDeserializer(registry).deserialize("orders", (), rows[0]) == {"id": 2, "total": 2.5}  # type: ignore[arg-type]
    assert rows[1] is None
    wrong = pa.struct([pa.field("id", pa.int64()), pa.field("totl", pa.float64())])
    with pytest.raises(SinkError, match=r"orders-value has no field value\.totl; its fields are id, total"):
        written([], wrong, **options)
    assert [one.id for one in registry.versions["orders-value"]] == [registered.id]


def test_both_deliveries_encode_the_rows_of_each_topic(registry: FakeRegistry) -> None:
    found = SinkOptions({}, formats=formats(valueFormat="json", keyFormat="string"))
    layout = RowLayout(None, has_key=True, has_partition=False, has_headers=False)
    values = pa.array([{"id": 1, "total": None}, {"id": 2, "total": None}], TWO_FIELDS)
    rows = pa.table({"key": pa.array(["a", None]), "value": values, "topic": pa.array(["s", "t"])})
    columns = [(one.topic, one.table.select(["key", "value"]).to_pylist()) for one in encoded(rows, layout, found)]
    assert columns == [("s", [{"key": "a", "value": b'{"id":1}'}]), ("t", [{"key": None, "value": b'{"id":2}'}])]


def test_a_new_subject_gets_a_schema_of_the_column(registry: FakeRegistry) -> None:
    options = {"valueFormat": "avro", "schema_registry_url": URL}
    with pytest.raises(SinkError, match=r"auto\.register\.schemas=true registers it"):
        written([], TWO_FIELDS, **options, use_latest_version="true")
    rows = written([{"id": 2, "total": None}], TWO_FIELDS, "new", **options)
    assert AvroDeserializer(registry).deserialize("new", (), rows[0]) == {"id": 2, "total": None}  # type: ignore[arg-type]
    assert json.loads(registry.latest("new-value").schema.text)["name"] == "new_value"
    rows = written([{"id": 2, "total": None}], TWO_FIELDS, "new2", **options | {"valueFormat": "json-schema"})
    assert JsonDeserializer(registry).deserialize("new2", (), rows[0]) == {"id": 2}  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="protobuf needs a schema"):
        written([], TWO_FIELDS, "new3", **options | {"valueFormat": "protobuf"})


def test_protobuf_and_plain_formats(registry: FakeRegistry) -> None:
    text = 'syntax = "proto3";\nmessage Order { int64 id = 1; double total = 2; }\n'
    registered = registry.register("orders-value", Schema(text, SchemaType.PROTOBUF))
    values = [{"id": 5, "total": None}, None]
    rows = written(values, TWO_FIELDS, valueFormat="protobuf", schema_registry_url=URL)
    assert rows == [bytes([0, 0, 0, 0, registered.id, 0, 8, 5]), None]
    assert written(values, TWO_FIELDS, valueFormat="protobuf", valueSchema=text) == [b"\x08\x05", None]
    assert written(values, TWO_FIELDS, valueFormat="avro", valueSchema=NULLABLE) == [
        b"\x02\x0a\x00",
        None,
    ]
    kind = pa.struct([*TWO_FIELDS, pa.field("raw", pa.binary()), pa.field("m", pa.map_(pa.string(), pa.date32()))])
    one = {"id": 1, "total": None, "raw": b"\xff", "m": [("k", datetime.date(2026, 1, 2))]}
    assert written([one, None], kind, valueFormat="json") == [b'{"id":1,"raw":"/w==","m":{"k":"2026-01-02"}}', None]


# -- bad records


def raw_batch(values: list[bytes | None]) -> pa.RecordBatch:
    rows = range(len(values))
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k%d" % row for row in rows], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "offset": pa.array([100 + row for row in rows], pa.int64()),
            "timestamp": pa.array([row * 1000 for row in rows], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], *[None for _ in rows[1:]]], pa.list_(header)),
        }
    )


def typed_read(**options: str) -> TypedRead:
    found = formats(valueFormat="json", valueSchema="id BIGINT", **options)
    target = pa.schema([pa.field("value", pa.struct([pa.field("id", pa.int64())])), pa.field("offset", pa.int64())])
    return TypedRead(found, {}, target, {})


def test_a_bad_record_stops_the_query_and_is_named() -> None:
    raw = iter([raw_batch([b'{"id": 1}', b"oops"])])
    with pytest.raises(RecordError, match=r"the value of the record at offset 101 of orders, partition 0, .* as json"):
        list(typed_batches(raw, typed_read(), T0))


def test_bad_records_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    raw = iter([raw_batch([b'{"id": 1}', b"oops", None]), raw_batch([b"x"])])
    found = list(typed_batches(raw, typed_read(errors_tolerance="all"), T0))
    assert [batch.to_pylist() for batch in found] == [
        [{"value": {"id": 1}, "offset": 100}, {"value": None, "offset": 102}]
    ]
    assert "2 bad records of orders-0 are left out; offset 101" in caplog.text


def test_dead_letters_are_the_records_with_the_headers_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = typed_read(errors_tolerance="all", errors_deadletterqueue_topic_name="bad")
    assert wanted.raw_columns == ("value", "offset", "key", "timestamp", "headers")
    table = letters(
        raw_batch([b"no", b'{"id": 1}']), {0: (PartFormat(is_key=False, format=RecordFormat.JSON), "it is no JSON")},
        T0, TaskIdentity("q-1", "3"),
    )  # fmt: skip
    [letter] = table.to_pylist()
    headers = {one["key"]: one["value"] for one in letter["headers"]}
    assert (letter["key"], letter["value"], headers.pop("h")) == (b"k0", b"no", b"1")
    prefix = "__connect.errors."
    assert {name.removeprefix(prefix): value.decode() for name, value in headers.items()} == {
        "topic": "orders",
        "partition": "0",
        "offset": "100",
        "connector.name": "q-1",
        "task.id": "3",
        "stage": "VALUE_CONVERTER",
        "class.name": "barnabas.spark.records.decoding.PartDecoder",
        "exception.class.name": "barnabas.client.errors.SerializationError",
        "exception.message": "it is no JSON",
        "exception.stacktrace": "barnabas.client.errors.SerializationError: it is no JSON",
    }
    plain = letters(raw_batch([b"no"]), {0: (wanted.formats.value, "x")}, T0, None)
    assert plain.to_pylist()[0]["headers"] == [{"key": "h", "value": b"1"}]
    again = list(headers.items())
    assert count_letters([again, again, [("h", b"1")]]) == {T0: 1}
    assert BadRecords(wanted, T0).count == 0


def test_json_keeps_the_null_values_of_maps_and_leaves_out_null_fields() -> None:
    kind = pa.struct(
        [("m", pa.map_(pa.string(), pa.float64())), ("l", pa.list_(pa.struct([("x", pa.int64())]))), ("n", pa.int64())]
    )
    value = {"m": [("a", None), ("b", math.nan)], "l": [{"x": None}, None, {"x": 1}], "n": None}
    (text,) = encoding.json_texts(pa.array([value], kind), b"").to_pylist()
    assert text == b'{"m":{"a":null,"b":"NaN"},"l":[{},null,{"x":1}]}'
