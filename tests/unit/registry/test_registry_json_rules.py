"""JSON Schema: parsing, content models, combinations, and the drafts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.json_schema import parse_json_schema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def problems(old: Any, new: Any) -> list[str]:
    reader, writer = parse_json_schema(json.dumps(new)), parse_json_schema(json.dumps(old))
    return [problem.kind for problem in reader.read_problems(writer)]


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


S, INT, N = {"type": "string"}, {"type": "integer"}, {"type": "number"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (S, True), (False, S), (INT, N), (S, {}),
        (closed(a=S), closed(a=S, b=S)),
        (opened(a=S, b=S), opened(a=S)),
        (opened(a=S), opened(a=S, b={})),
        (closed(a=S), opened(a=S)),
        (closed(a=S), {**closed(a=S, b={**S, "default": ""}), "required": ["b"]}),
        ({**opened(), "additionalProperties": S}, {**opened(b=S), "additionalProperties": S}),
        ({**opened(b=S), "additionalProperties": S}, {**opened(), "additionalProperties": S}),
        ({"enum": ["a"]}, {"enum": ["b", "a"]}),
        ({**S, "maxLength": 3}, {**S, "maxLength": 4}),
        ({**N, "minimum": 3}, {**N, "minimum": 2}),
        ({"$schema": DRAFT_4, **N, "exclusiveMinimum": True, "minimum": 3}, {**N, "exclusiveMinimum": 2}),
        ({**N, "multipleOf": 0.3}, {**N, "multipleOf": 0.1}),
        (S, {"type": ["string", "null"]}), (S, {"oneOf": [INT, S]}),
        ({"anyOf": [S, INT]}, {"anyOf": [{"type": "null"}, N, S]}),
        ({"allOf": [{**S, "maxLength": 3}, {**S, "minLength": 1}]}, {**S, "maxLength": 5}),
        ({"oneOf": [S, INT]}, {"anyOf": [S, INT]}),
        ({"not": N}, {"not": INT}),
        ({"type": "array", "items": [S, INT], "additionalItems": False},
         {"type": "array", "items": [S], "additionalItems": INT}),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}),
        ({**opened(), "dependencies": {"a": ["b", "c"]}}, {**opened(), "dependencies": {"a": ["b"]}}),
        ({"definitions": {"s": S}, **opened(a={"$ref": "#/definitions/s"})}, opened(a=S)),
    ],
)  # fmt: skip
def test_compatible_json_schema_changes_have_no_problems(old: Any, new: Any) -> None:
    assert problems(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (S, INT, ["TYPE_CHANGED"]), (N, INT, ["TYPE_NARROWED"]), (True, S, ["TYPE_CHANGED"]),
        (opened(a=S), opened(a=S, b=S), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (closed(a=S, b=S), closed(a=S), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        (opened(a=S), closed(a=S), ["ADDITIONAL_PROPERTIES_REMOVED"]),
        (opened(a=S), {**opened(a=S), "additionalProperties": S}, ["ADDITIONAL_PROPERTIES_NARROWED"]),
        (closed(a=S), {**closed(a=S, b=S), "required": ["b"]}, ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
        (opened(a=S), {**opened(a=S), "required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED"]),
        (opened(a=S), {**opened(a=S), "required": ["z"]}, ["REQUIRED_ATTRIBUTE_ADDED"]),
        ({**opened(), "additionalProperties": S}, {**opened(b=INT), "additionalProperties": S},
         ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED"]),
        ({"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_CHANGED"]),
        ({"const": 1}, {"const": 2}, ["CONST_CHANGED"]),
        ({**S, "maxLength": 3}, {**S, "maxLength": 2}, ["MAX_LENGTH_DECREASED"]),
        (S, {**S, "pattern": "a"}, ["PATTERN_ADDED"]),
        ({**N, "multipleOf": 2}, {**N, "multipleOf": 3}, ["MULTIPLE_OF_CHANGED"]),
        ({"type": ["string", "null"]}, S, ["TYPE_CHANGED"]),
        ({"oneOf": [S, INT]}, {"oneOf": [S]}, ["SUM_TYPE_NARROWED"]),
        ({"allOf": [S]}, {"allOf": [S, {**S, "maxLength": 2}]}, ["PRODUCT_TYPE_EXTENDED"]),
        ({"anyOf": [S, INT]}, {"oneOf": [S, INT]}, ["COMBINED_TYPE_CHANGED"]),
        ({"anyOf": [S, INT]}, {"anyOf": [{"type": "null"}, INT]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]),
        ({"not": INT}, {"not": N}, ["NOT_TYPE_EXTENDED"]),
        ({"type": "array", "items": S}, {"type": "array", "items": INT}, ["TYPE_CHANGED"]),
        (opened(), {**opened(), "patternProperties": {"^a": S}}, ["PATTERN_PROPERTY_ADDED"]),
        (opened(), {**opened(), "dependencies": {"a": ["b"]}}, ["DEPENDENCY_ARRAY_ADDED"]),
        ({"if": S, "then": S}, {"if": S, "then": {"maxLength": 1}}, ["CONDITION_CHANGED"]),
    ],
)  # fmt: skip
def test_incompatible_json_schema_changes_are_reported(old: Any, new: Any, expected: list[str]) -> None:
    assert problems(old, new) == expected


def test_comparison_of_recursive_schemas_terminates() -> None:
    def tree(value: Any) -> Any:
        children = {"type": "array", "items": {"$ref": "#"}}
        return {"type": "object", "properties": {"value": value, "children": children}}

    assert problems(tree(INT), tree(N)) == []
    assert problems(tree(N), tree(INT)) == ["TYPE_NARROWED"]
    assert problems({"$ref": "#/definitions/a", "definitions": {"a": S}}, S) == []


def test_draft_2020_tuples_and_anchors_are_compared() -> None:
    def pair(first: Any, rest: Any) -> Any:
        return {"$schema": DRAFT_2020, "type": "array", "prefixItems": [first], "items": rest}

    assert problems(pair(INT, False), pair(N, S)) == []
    assert problems(pair(INT, S), pair(INT, False)) == ["ADDITIONAL_ITEMS_REMOVED"]
    anchored = {"$schema": DRAFT_2020, "$defs": {"x": {"$anchor": "here", **S}}, "$ref": "#here"}
    assert problems(anchored, S) == []


def test_references_to_other_documents_are_resolved() -> None:
    other = {"person.json": json.dumps({"definitions": {"name": S}, **opened(n={"$ref": "#/definitions/name"})})}
    uses = parse_json_schema('{"type": "array", "items": {"$ref": "person.json"}}', other)
    narrower = {"person.json": json.dumps(opened(n={**S, "maxLength": 1}))}
    changed = parse_json_schema('{"type": "array", "items": {"$ref": "person.json"}}', narrower)
    assert uses.read_problems(changed) == []
    assert [p.path for p in changed.read_problems(uses)] == ["#/additionalItems/properties/n/maxLength"]
    with pytest.raises(InvalidSchemaError, match="not among the references"):
        parse_json_schema('{"$ref": "person.json"}')


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("7", "object or a boolean"),
        ('{"type": "strin"}', "not valid at type"),
        ('{"$ref": "#/definitions/no"}', "points to a part of its document that does not exist"),
        ('{"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}', "is circular"),
    ],
)
def test_invalid_json_schemas_are_rejected_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InvalidSchemaError, match=complaint):
        parse_json_schema(text)


def test_a_pattern_that_backtracks_exponentially_is_matched_in_linear_time() -> None:
    old = {**closed(), "patternProperties": {"^(a+)+$": S}}
    assert problems(old, {**closed(**{"a" * 1_000: S}), "patternProperties": {"^(a+)+$": S}}) == []
    assert problems(old, {**closed(**{"a" * 1_000 + "!": S}), "patternProperties": {"^(a+)+$": S}}) == []
    assert "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL" in problems(
        old, {**closed(**{"a" * 1_000: INT}), "patternProperties": {"^(a+)+$": S}}
    )


def test_a_pattern_with_look_around_selects_no_property() -> None:
    patterns = {"patternProperties": {"^(?!x)": S}}
    assert problems({**closed(), **patterns}, {**closed(a=INT), **patterns}) == []


def levels(count: int, length: int) -> dict[str, Any]:
    """A schema whose comparison takes twice as long with each level."""
    definitions: dict[str, Any] = {
        f"d{level}": opened(**{name: {"$ref": f"#/definitions/d{level + 1}"} for name in "ab"})
        for level in range(count)
    }
    definitions[f"d{count}"] = {**S, "maxLength": length}
    return {"definitions": definitions, "$ref": "#/definitions/d0"}


def test_a_comparison_that_would_take_too_many_steps_is_refused() -> None:
    assert problems(levels(5, 1), levels(5, 2)) == []
    with pytest.raises(InvalidSchemaError, match="cannot be compared with the previous version in 100000 steps"):
        problems(levels(60, 1), levels(60, 2))
    with pytest.raises(InvalidSchemaError, match="cannot be compared"):
        problems(*({"anyOf": [{**S, "maxLength": size + i} for i in range(400)]} for size in (2_000, 1_000)))


def test_long_enums_are_compared() -> None:
    names = [f"name {index}" for index in range(50_000)]
    assert problems({"enum": names}, {"enum": names[::-1]}) == []
    assert problems({"enum": names}, {"enum": names[1:]}) == ["ENUM_ARRAY_NARROWED"]
    with pytest.raises(InvalidSchemaError, match="cannot be compared"):
        problems({"enum": list(range(10_000))}, {"enum": list(range(9_999, -1, -1))})
