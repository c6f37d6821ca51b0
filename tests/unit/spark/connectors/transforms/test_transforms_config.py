"""Configurations of transforms that are refused, with the key and what to write instead."""

from __future__ import annotations

import pytest

from barnabas.spark.connectors.transforms.chain import compile_chain
from barnabas.spark.connectors.transforms.definitions import PREDICATES, TRANSFORMS
from barnabas.spark.connectors.transforms.errors import TransformConfigError
from barnabas.spark.connectors.transforms.plugins import OF_PART, OF_RECORD, PREDICATE_BUILDERS

WRONG = [
    (
        {"type": "Cats$Value", "spec": "a:int8"},
        "transforms.t.type names no transform, got 'Cats.Value': did you mean Cast",
    ),
    ({"type": "Cast", "spec": "a:int8"}, "did you mean Cast"),
    ({"spec": "a:int8"}, "transforms.t.type is missing"),
    ({"type": "Cast$Value"}, "transforms.t.spec is missing"),
    ({"type": "Cast$Value", "spec": "a:int7"}, "transforms.t.spec must be field:type pairs"),
    ({"type": "Cast$Value", "spec": "int8,a:int8"}, "either field:type pairs, or one type"),
    ({"type": "Cast$Value", "spec": "a:int8", "spek": "x"}, "no key transforms.t.spek: did you mean transforms.t.spec"),
    ({"type": "HeaderFrom$Value", "fields": "a,b", "headers": "x", "operation": "move"}, "must have as many names"),
    ({"type": "HeaderFrom$Value", "fields": "a", "headers": "x", "operation": "mv"}, "must be one of move, copy"),
    ({"type": "InsertField$Value"}, "inserts nothing"),
    ({"type": "MaskField$Value", "fields": "a", "replacement": ""}, "a text that is not empty"),
    ({"type": "RegexRouter", "regex": "(", "replacement": "x"}, "transforms.t.regex must be a regular expression"),
    ({"type": "RegexRouter", "regex": "a", "replacement": "$1"}, r"\$ at position 0 without a group's number"),
    ({"type": "ReplaceField$Value", "renames": "a"}, "old:new pairs"),
    ({"type": "SetSchemaMetadata$Value"}, "must be given"),
    ({"type": "TimestampConverter$Value", "target.type": "string"}, "because target.type is string"),
    ({"type": "TimestampConverter$Value", "target.type": "unix", "format": "yyyy-QQ"}, "the letter 'Q' at position 5"),
    ({"type": "Filter", "predicate": "p"}, "predicate names 'p', which is not in the list predicates"),
    ({"type": "Filter", "negate": "true"}, "has no effect without transforms.t.predicate"),
]


@pytest.mark.parametrize(("keys", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_a_wrong_configuration_is_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(TransformConfigError, match=message):
        compile_chain({"transforms": "t"} | {f"transforms.t.{key}": text for key, text in keys.items()})


def test_keys_that_belong_to_no_name_and_names_that_occur_twice_are_refused() -> None:
    with pytest.raises(TransformConfigError, match=r"transforms\.u\.type belongs to no name in transforms='t'"):
        compile_chain({"transforms": "t", "transforms.t.type": "Filter", "transforms.u.type": "Filter"})
    with pytest.raises(TransformConfigError, match="transforms has a name twice"):
        compile_chain({"transforms": "t,t", "transforms.t.type": "Filter"})


def test_every_definition_has_a_builder_and_every_builder_a_definition() -> None:
    assert {row.name for row in TRANSFORMS if row.variants} == set(OF_PART)
    assert {row.name for row in TRANSFORMS if not row.variants} == set(OF_RECORD)
    assert {row.name for row in PREDICATES} == set(PREDICATE_BUILDERS)
