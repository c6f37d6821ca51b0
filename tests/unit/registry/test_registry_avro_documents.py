"""JSON documents as Avro values, and back."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from barnabas.registry.serde.avro_documents import avro_value, document_of

ORDER = {
    "type": "record", "name": "shop.Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}, "default": "S"},
        {"name": "other", "type": ["null", "shop.Size", "int"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "prices", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "raw", "type": "bytes", "default": ""},
        {"name": "hash", "type": ["null", {"type": "fixed", "name": "Hash", "size": 2}], "default": None},
        {"name": "sum", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
         "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "child", "type": ["null", "shop.Order"], "default": None},
    ],
}  # fmt: skip


def round_trip(schema: Any, document: Any) -> Any:
    parsed = fastavro.parse_schema(schema)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, avro_value(parsed, document))
    return document_of(fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed, None))


def test_what_was_read_can_be_written_again() -> None:
    document = {
        "id": 1, "note": "n", "size": "L", "other": "S", "tags": ["a"], "prices": {"x": 1.5}, "raw": "AAE=",
        "hash": "AAE=", "sum": "12.50", "at": "2026-01-31T08:15:00+00:00", "child": {"id": 2},
    }  # fmt: skip
    once = round_trip(ORDER, document)
    assert once["child"]["id"] == 2
    assert once["child"]["size"] == "S"
    assert once["at"] == "2026-01-31 08:15:00+00:00"
    assert {name: once[name] for name in ("id", "note", "size", "other", "tags", "prices", "raw", "hash", "sum")} == {
        name: document[name] for name in ("id", "note", "size", "other", "tags", "prices", "raw", "hash", "sum")
    }
    assert round_trip(ORDER, once) == once


def test_unions_as_avros_json_encoding_has_them() -> None:
    assert round_trip(ORDER, {"id": 1, "note": {"string": "n"}, "other": {"int": 3}})["other"] == 3
    assert round_trip("long", 5) == 5
    assert round_trip(["null", "boolean"], None) is None


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "the value: [] is not a record shop.Order"),
        ({}, "id: the field is missing, and has no default"),
        ({"id": "1"}, 'id: "1" is not a long'),
        ({"id": True}, "id: true is not a long"),
        ({"id": 1 << 63}, f"id: {1 << 63} is not a long"),
        ({"id": 1, "naem": "n"}, "naem: the schema has no such field; it has id, note"),
        ({"id": 1, "size": "M"}, 'size: "M" is not one of S, L'),
        ({"id": 1, "tags": ["a", 2]}, "tags[1]: 2 is not a string"),
        ({"id": 1, "prices": {"x": "1"}}, 'prices.x: "1" is not a number'),
        ({"id": 1, "raw": "?"}, 'raw: "?" is not bytes in base64'),
        ({"id": 1, "sum": "many"}, 'sum: "many" is not a decimal number'),
        ({"id": 1, "at": "noon"}, 'at: "noon" is not a timestamp-millis in ISO 8601'),
        ({"id": 1, "child": {"id": 2, "size": 3}}, "child.size: 3 is not one of S, L"),
    ],
)
def test_a_problem_names_the_field(document: Any, problem: str) -> None:
    parsed = fastavro.parse_schema(json.loads(json.dumps(ORDER)))
    with pytest.raises(ValueError) as error:
        avro_value(parsed, document)
    assert problem in str(error.value)
