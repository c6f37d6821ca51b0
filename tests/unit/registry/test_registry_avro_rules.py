"""Avro: parsing schemas, canonical text, and the rules of compatibility, one rule at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.avro import AvroSchema, parse_avro


def avro(schema: Any) -> AvroSchema:
    return parse_avro(json.dumps(schema))


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def f(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def problems(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(problem.kind, problem.path) for problem in avro(reader).read_problems(avro(writer))]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"), ("float", "int"), ("double", "int"), ("float", "long"), ("double", "long"),
        ("double", "float"), ("string", "bytes"), ("bytes", "string"),
        (["null", "int"], "int"), ("int", ["int"]), (["null", "long"], ["int", "null"]),
        (record(f("a", "int"), f("b", "int", default=1)), record(f("a", "int"))),
        (record(), record(f("a", "int"))),
        (record(f("new", "int", aliases=["old"])), record(f("old", "int"))),
        (record(name="New", aliases=["R"]), record()),
        (record(namespace="x"), record(namespace="y")),
        (enum("A", "B"), enum("A")), (enum("A", default="A"), enum("B")),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
        (record(f("next", ["null", "R"])), record(f("next", ["null", "R"]))),
    ],
)  # fmt: skip
def test_compatible_avro_changes_have_no_problems(reader: Any, writer: Any) -> None:
    assert problems(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("int", "long", [("TYPE_MISMATCH", "/")]),
        ("int", ["int", "string"], [("MISSING_UNION_BRANCH", "/1")]),
        (["null", "int"], "string", [("MISSING_UNION_BRANCH", "/")]),
        (record(f("a", "int"), f("b", "int")), record(f("a", "string")), [
            ("TYPE_MISMATCH", "/fields/0/type"), ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")]),
        (record(name="A"), record(name="B"), [("NAME_MISMATCH", "/name")]),
        (enum("A"), enum("A", "B"), [("MISSING_ENUM_SYMBOLS", "/symbols")]),
        ({"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2},
         [("FIXED_SIZE_MISMATCH", "/size")]),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [("TYPE_MISMATCH", "/items")]),
        (record(f("a", ["null", record(f("x", "int"), name="In")])), record(f("a", ["null", record(name="In")])),
         [("MISSING_UNION_BRANCH", "/fields/0/type/1")]),
    ],
)  # fmt: skip
def test_incompatible_avro_changes_are_reported_with_their_path(
    reader: Any, writer: Any, expected: list[tuple[str, str]]
) -> None:
    assert problems(reader, writer) == expected


@pytest.mark.parametrize(
    "texts",
    [
        ('"string"', '{"type": "string"}', '{"type":{"type":"string"}}'),
        (
            '{"type":"record","name":"C","namespace":"a.b","fields":[{"name":"x","type":"int","default":1}]}',
            '{"fields": [{"default": 1, "type": {"type": "int"}, "name": "x"}], "name": "a.b.C", "type": "record"}',
        ),
    ],
)
def test_equivalent_schemas_have_one_canonical_text(texts: tuple[str, ...]) -> None:
    assert {parse_avro(text).canonical for text in texts} == {texts[0]}


def test_canonical_text_writes_each_type_once_and_uses_short_names() -> None:
    inner = {"type": "enum", "name": "other.E", "symbols": ["A"], "doc": "d", "aliases": ["Old"]}
    schema = record(f("e", inner), f("again", "other.E"), f("self", ["null", "ns.R"]), namespace="ns", logical="x")
    assert avro(schema).canonical == (
        '{"type":"record","name":"R","namespace":"ns","fields":['
        '{"name":"e","type":{"type":"enum","name":"E","namespace":"other","doc":"d","symbols":["A"],"aliases":["Old"]}},'
        '{"name":"again","type":"other.E"},{"name":"self","type":["null","R"]}],"logical":"x"}'
    )


def test_types_of_references_are_not_written_out() -> None:
    user = '{"type":"record","name":"User","namespace":"shop","fields":[]}'
    order = parse_avro('{"type":"record","name":"Order","fields":[{"name":"u","type":"shop.User"}]}', [user])
    assert order.canonical == '{"type":"record","name":"Order","fields":[{"name":"u","type":"shop.User"}]}'
    assert '"fields":[]' in order.formatted("resolved")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 300 + "]" * 300, "more than 200 deep"),
        ('{"type": "nonsense"}', "'nonsense' is not defined"),
        ('{"type": "record", "name": "R"}', "'fields' is missing"),
        ('{"type": "record", "name": "1R", "fields": []}', "is not a name"),
        ('{"type": "record", "name": "int", "fields": []}', "primitive"),
        ('["int", "int"]', "has int twice"),
        ('["int", ["null"]]', "must not contain a union"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "a symbol twice"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "not one of its symbols"),
        ('{"type": "fixed", "name": "F", "size": -1}', "not a number of bytes"),
        (json.dumps(record(f("a", "int"), f("a", "int"))), "the field 'a' twice"),
        (json.dumps(record(f("a", "int", default="x"))), "default of field 'a' does not fit"),
        (json.dumps(record(f("a", ["null", "int"], default="x"))), "fits no branch"),
        (json.dumps(record(f("a", record()))), "defined twice"),
        ('{"type": "int", "type": "long"}', "'type' twice"),
        ("7", "is not a schema"),
    ],
)
def test_invalid_avro_text_is_rejected_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InvalidSchemaError, match=complaint):
        parse_avro(text)


def test_stored_schemas_are_parsed_without_checking_defaults() -> None:
    text = json.dumps(record(f("a", "int", default="x")))
    assert parse_avro(text, strict=False).canonical == text.replace(" ", "")
