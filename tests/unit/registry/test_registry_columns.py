"""Columns of registry values: schema evolution, errors, and unusual input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from barnabas.client.errors import SerializationError
from barnabas.registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from barnabas.registry.columns import AvroColumns, JsonColumns, ProtobufColumns
from tests.system.registry.test_system_registry_confluent import message_classes
from tests.unit.registry.memory_registry import memory_registry

NOW_MS = 1_700_000_000_123


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "User", "fields": list(fields)})


FLAT_1 = record(
    {"name": "id", "type": "int"},
    {"name": "gone", "type": ["null", {"type": "record", "name": "Gone", "fields": [{"name": "q", "type": "string"}]}]},
    {"name": "name", "type": ["null", "string"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
    {"name": "x", "type": ["double", "null"]},
    {"name": "y", "type": "float"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
)
FLAT_2 = record(
    {"name": "id", "type": "long"},
    {"name": "new", "type": "string", "default": "d"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["B", "A", "C"]}},
    {"name": "code", "type": ["null", {"type": "fixed", "name": "Code", "size": 3}]},
    {"name": "x", "type": ["null", "double"]},
    {"name": "y", "type": "double"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {
        "name": "inner",
        "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "z", "type": ["null", "bytes"]}]}],
        "default": None,
    },
)


def one(**other: Any) -> dict[str, Any]:
    return {"id": 5, "name": None, "kind": "B", "code": b"abc", "x": 1.5, "y": 0.25, "at": NOW_MS} | other


def binary(rows: Sequence[bytes | None]) -> pa.Array:
    return pa.array(rows, pa.binary())


def two_versions(registry: Any) -> list[bytes | None]:
    first, second = AvroSerializer(registry, FLAT_1), AvroSerializer(registry, FLAT_2)
    return [
        first.serialize("t", (), one(gone={"q": "zz"}, id=-(2**31))),
        None,
        second.serialize("t", (), one(new="n", inner={"z": b"hi"}, code=None, kind="C", id=2**62)),
        first.serialize("t", (), one(gone=None, name="\u00e9", x=None)),
        second.serialize("t", (), one(new="", inner=None)),
        second.serialize("t", (), one(new="m", inner={"z": None}, code=b"xyz")),
    ]


def test_avro_rows_of_two_versions_become_one_column() -> None:
    registry = memory_registry()
    rows = two_versions(registry)
    columns = AvroColumns(registry)
    values = columns.decode(binary(rows), "t").values
    values.validate(full=True)
    read = AvroDeserializer(registry, FLAT_2)
    assert values.to_pylist() == [read.deserialize("t", (), row) for row in rows]
    assert values.type.field("at").type == pa.timestamp("ms", "UTC")
    assert None not in columns._programs.values()  # programs read both versions
    again = AvroColumns(registry, FLAT_2).encode(values, "t")
    assert AvroColumns(registry).decode(again, "t").values.equals(values)
    sliced = columns.decode(binary(rows).slice(2, 3), "t").values
    assert sliced.to_pylist() == values.to_pylist()[2:5]


def test_invalid_avro_rows_are_null_with_an_error() -> None:
    registry = memory_registry()
    rows = two_versions(registry)
    good = rows[2]
    assert good is not None
    broken = binary([good, good[:9], b"x", None, b"\0\0\0\0\x63a", b"{}abcde", good[:5] + b"\xff" * 11])
    columns = AvroColumns(registry, on_error="null")
    decoded = columns.decode(broken, "t")
    assert decoded.errors is not None
    assert decoded.errors.to_pylist() == [
        None,
        "the row ends before its last field",
        "1 bytes are too short for a schema id",
        None,
        "the registry has no schema with the id 99",
        "the value begins with byte 123, not 0: it was not written by a schema registry serializer",
        "a number is out of range",
    ]
    assert decoded.values.is_null().to_pylist() == [False, True, True, True, True, True, True]
    assert columns.failures == 5
    with pytest.raises(SerializationError, match="Row 1 of a batch of 't' cannot be read: the row ends"):
        AvroColumns(registry).decode(broken.slice(0, 2), "t")


def test_only_the_row_with_invalid_utf8_fails() -> None:
    registry = memory_registry()
    schema = record({"name": "s", "type": "string"})
    good = AvroSerializer(registry, schema).serialize("t", (), {"s": "fine"})
    assert good is not None
    decoded = AvroColumns(registry, on_error="null").decode(binary([good, good[:5] + b"\x02\xff", good]), "t")
    assert decoded.values.to_pylist() == [{"s": "fine"}, None, {"s": "fine"}]
    assert decoded.errors is not None
    assert decoded.errors.to_pylist()[1].startswith("UnicodeDecodeError")


def test_avro_schemas_without_a_program_are_read_by_fastavro() -> None:
    registry = memory_registry()
    schema = record(
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "map", "type": {"type": "map", "values": "string"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    )
    kind = pa.struct(
        {"list": pa.list_(pa.int64()), "map": pa.map_(pa.string(), pa.string()), "price": pa.decimal128(6, 2)}
    )
    prices = pa.array([1234, None]).cast(pa.decimal128(38, 0))
    values = pa.array(
        [{"list": [1, None], "map": {"a": "b"}, "price": prices[0].as_py()}, None],
        pa.struct(
            {"list": pa.list_(pa.int64()), "map": pa.map_(pa.string(), pa.string()), "price": pa.decimal128(6, 2)}
        ),
    )
    columns = AvroColumns(registry, schema)
    assert columns.decode(columns.encode(values, "t"), "t").values.equals(values)
    assert values.type == kind
    recursive = record({"name": "next", "type": ["null", "User"]})
    with pytest.raises(ValueError, match="User contains itself"):
        AvroColumns(registry, recursive).decode(binary([b"\0\0\0\0\1\0"]), "t")
    with pytest.raises(ValueError, match="a union of several types has no column type"):
        AvroColumns(registry, '["int", "string"]').decode(binary([b"\0\0\0\0\1\0"]), "t")


def test_avro_keys_may_be_primitives() -> None:
    registry = memory_registry()
    write = AvroSerializer(registry, '"string"', is_key=True)
    keys = binary([write.serialize("t", (), "a"), None, write.serialize("t", (), "b")])
    assert AvroColumns(registry, is_key=True).decode(keys, "t").values.equals(pa.array(["a", None, "b"]))
    assert AvroColumns(registry).decode(binary([None, None]), "other").values.equals(pa.nulls(2))
    assert len(AvroColumns(registry).decode(binary([]), "other").values) == 0


def test_json_columns_accept_any_json_value() -> None:
    registry = memory_registry()
    write = JsonSerializer(registry, "{}")
    read = JsonDeserializer(registry)
    documents = [{"a": n, "s": "x\ny}{", "l": [1, 2], "o": {"k": None}} if n % 3 else None for n in range(50)]
    rows = [write.serialize("t", (), document) for document in documents]
    pretty = json.dumps({"a": 1, "s": "", "l": [], "o": {"k": None}}, indent=2).encode()
    rows.append(b"\0\0\0\0\1" + pretty)
    values = JsonColumns(registry).decode(binary(rows), "t").values
    assert values.to_pylist() == [read.deserialize("t", (), row) for row in rows]
    numbers = binary([b"\0\0\0\0\x011", b"\0\0\0\0\x012"])
    assert JsonColumns(registry).decode(numbers, "t").values.equals(pa.array([1, 2]))
    with_kind = JsonColumns(registry, pa.schema({"a": pa.float64(), "new": pa.string()}))
    assert with_kind.decode(binary(rows[1:2]), "t").values.to_pylist() == [{"a": 1.0, "new": None}]
    again = JsonColumns(registry).encode(values, "t")
    assert JsonColumns(registry).decode(again, "t").values.equals(values)


def test_invalid_json_rows_are_null_with_an_error() -> None:
    registry = memory_registry()
    registry.register("t-value", next(iter([JsonSerializer(registry, "{}").prepare("t").schema])))
    bodies = [b"{}", b"", b"{} {}", b'{"a":1}', b'{"a":"\xff"}', b'{"a":"text"}', b'{"a":', b"}", b" "]
    rows = binary([b"\0\0\0\0\1" + body for body in bodies] + [b"{}", b"\0\0\0\0\x09{}"])
    columns = JsonColumns(registry, pa.struct({"a": pa.int64()}), on_error="null")
    decoded = columns.decode(rows, "t")
    assert decoded.values.to_pylist() == [{"a": None}, None, None, {"a": 1}] + [None] * 7
    assert decoded.errors is not None
    assert decoded.errors.is_null().to_pylist() == [True, False, False, True] + [False] * 7
    with pytest.raises(SerializationError, match="Row 1 of a batch of 't'"):
        JsonColumns(registry, pa.struct({"a": pa.int64()})).decode(rows.slice(0, 4), "t")
    mixed = binary([b'\0\0\0\0\x01{"a":1}', b'\0\0\0\0\x01{"a":"x"}'])
    with pytest.raises(SerializationError, match=r"do not fit one type.*Give the type"):
        JsonColumns(registry, on_error="null").decode(mixed, "t")


def test_rows_with_a_schema_of_another_type_are_rejected() -> None:
    registry = memory_registry()
    row = JsonSerializer(registry, "{}").serialize("t", (), {})
    decoded = AvroColumns(registry, '"string"', on_error="null").decode(binary([row]), "t")
    assert decoded.errors is not None
    assert decoded.errors.to_pylist() == ["the row was written with a JSON schema: use the columns class for that type"]
    with pytest.raises(ValueError, match='on_error must be "raise" or "null"'):
        AvroColumns(registry, on_error="drop")  # type: ignore[arg-type]


def test_protobuf_columns_work_with_and_without_a_class() -> None:
    registry = memory_registry()
    classes = message_classes()
    order = classes["shop.Order"](id=7, cash=True, tags={"a": "b"})
    order.lines.add(sku="x").price.cents = 995
    order.at.seconds = 5
    write = ProtobufSerializer(registry, classes["shop.Order"])
    rows = binary([write.serialize("t", (), order), None, write.serialize("t", (), classes["shop.Order"](note=""))])
    expected: list[Any] = [
        {
            "id": 7,
            "lines": [{"sku": "x", "price": {"cents": 995}}],
            "at": {"seconds": 5, "nanos": 0},
            "tags": [("a", "b")],
            "card": None,
            "cash": True,
            "note": None,
        },
        None,
        {"id": 0, "lines": [], "at": None, "tags": [], "card": None, "cash": None, "note": ""},
    ]
    columns = ProtobufColumns(registry, classes["shop.Order"])
    values = columns.decode(rows, "t").values
    assert values.to_pylist() == expected
    assert ProtobufColumns(registry).decode(rows, "t").values.equals(values)
    read = ProtobufDeserializer(registry, classes["shop.Order"])
    assert read.deserialize("t", (), columns.encode(values, "t")[0].as_py()) == order
    line = ProtobufSerializer(registry, classes["shop.Order.Line"]).serialize("t", (), classes["shop.Order.Line"]())
    bad = binary([rows[0].as_py(), line, rows[0].as_py()[:-1]])
    decoded = ProtobufColumns(registry, on_error="null").decode(bad, "t")
    assert decoded.errors is not None
    problems = decoded.errors.to_pylist()
    assert problems[:2] == [None, "the message is a shop.Order.Line, but the column has shop.Order"]
    assert problems[2].startswith("DecodeError")
    assert decoded.values.to_pylist() == [expected[0], None, None]


def test_avro_times_are_written_in_the_units_of_the_schema() -> None:
    registry = memory_registry()
    at = {"type": "long", "logicalType": "timestamp-millis"}
    flat = record({"name": "at", "type": at})
    listed = record({"name": "at", "type": at}, {"name": "all", "type": {"type": "array", "items": at}})
    moment = pa.scalar(NOW_MS * 1000, pa.timestamp("us", "UTC"))
    for schema, row in ((flat, {"at": moment.as_py()}), (listed, {"at": moment.as_py(), "all": [moment.as_py()]})):
        kind = pa.struct({"at": moment.type} | ({"all": pa.list_(moment.type)} if "all" in row else {}))
        columns = AvroColumns(registry, schema)
        encoded = columns.encode(pa.chunked_array([pa.array([row, None], kind), pa.array([row], kind)]), "t")
        assert columns.decode(encoded, "t").values.to_pylist() == [row, None, row]
        finer = pa.array([{**row, "at": NOW_MS * 1000 + 1}], kind)
        with pytest.raises(SerializationError, match="would lose data"):
            columns.encode(finer, "t")


def test_avro_columns_that_do_not_fit_the_schema_raise() -> None:
    registry = memory_registry()
    columns = AvroColumns(registry, record({"name": "id", "type": "int"}, {"name": "n", "type": "int", "default": 3}))
    with pytest.raises(SerializationError, match="Row 1 for 't' does not fit its Avro schema"):
        columns.encode(pa.array([{"id": 1, "n": 1}, {"id": None, "n": 1}]), "t")
    with pytest.raises(SerializationError, match="The column for 't' does not fit its Avro schema"):
        columns.encode(pa.array([{"id": 2**40, "n": 1}]), "t")
    defaulted = columns.encode(pa.array([{"id": 1, "beside": "x"}]), "t")
    assert columns.decode(defaulted, "t").values.to_pylist() == [{"id": 1, "n": 3}]
    kinds = AvroColumns(registry, record({"name": "k", "type": {"type": "enum", "name": "K", "symbols": ["A"]}}))
    with pytest.raises(SerializationError, match="Row 0"):
        kinds.encode(pa.array([{"k": "B"}]), "t")
