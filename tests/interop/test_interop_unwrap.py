"""Debezium's ExtractNewRecordState and ours: the same configuration and change events in, the same records out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from bench.connectors.kafka_connect import connect_classpath

from tests.interop.test_interop_transforms import answers_of, comparable, differences, ours

TYPE = "io.debezium.transforms.ExtractNewRecordState"
ROW: dict[str, Any] = {
    "type": "struct",
    "optional": True,
    "name": "shop.public.orders.Value",
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "note"},
    ],
}
SOURCE: dict[str, Any] = {
    "type": "struct",
    "optional": False,
    "name": "io.debezium.connector.postgresql.Source",
    "field": "source",
    "fields": [
        {"type": "string", "optional": False, "field": "version"},
        {"type": "string", "optional": False, "field": "connector"},
        {"type": "string", "optional": False, "field": "name"},
        {"type": "int64", "optional": False, "field": "ts_ms"},
        {"type": "string", "optional": False, "field": "db"},
        {"type": "string", "optional": False, "field": "table"},
        {"type": "int64", "optional": True, "field": "lsn"},
    ],
}
TRANSACTION: dict[str, Any] = {
    "type": "struct",
    "optional": True,
    "name": "event.block",
    "field": "transaction",
    "fields": [
        {"type": "string", "optional": False, "field": "id"},
        {"type": "int64", "optional": False, "field": "total_order"},
        {"type": "int64", "optional": False, "field": "data_collection_order"},
    ],
}
SIMPLE = [{"type": "string", "optional": False, "field": "op"}, {"type": "int64", "optional": True, "field": "ts_ms"}]
KEY = {"type": "struct", "optional": False, "fields": [{"type": "int32", "optional": False, "field": "id"}]}


def envelope(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
    rows = [{**ROW, "field": "before"}, {**ROW, "field": "after"}]
    return {"type": "struct", "optional": False, "name": name, "fields": [*rows, *parts, *SIMPLE]}


FULL = envelope("shop.public.orders.Envelope", SOURCE, TRANSACTION)
BARE = envelope("shop.public.orders.Envelope")
OTHER = envelope("shop.Order", SOURCE, TRANSACTION)
BLOCK = {"version": "3", "connector": "p", "name": "shop", "ts_ms": 5, "db": "d", "table": "orders", "lsn": 77}
OLD, NEW = {"id": 1, "note": "old"}, {"id": 1, "note": "new"}


def event(op: str, before: Any, after: Any, transaction: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": BLOCK, "transaction": transaction, "op": op, "ts_ms": 9}


EVENTS = [
    event("r", None, NEW),
    event("c", None, {"id": 1, "note": None}, {"id": "7", "total_order": 1, "data_collection_order": 1}),
    event("u", OLD, NEW),
    event("d", OLD, None),
    None,
    event("t", None, None),
]
MODES = ("tombstone", "drop", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
ADDED: list[dict[str, str]] = [
    {},
    {"add.fields": "op,table,source.ts_ms,lsn:at,ts_ms"},
    {"add.fields": "transaction.id,total_order", "add.fields.prefix": "x_"},
    {"add.headers": "op,source.ts_ms,lsn"},
    {"add.headers": "table:t", "add.headers.prefix": ""},
    {"add.fields": "op,ts_ms", "add.headers": "op"},
    {"route.by.field": "note"},
]
CASES = [{"delete.tombstone.handling.mode": mode, **added} for mode, added in itertools.product(MODES, ADDED)]
CASES.append({})
_MISSING = ("source", "table", "transaction")
_BARE_CASES = [config for config in CASES if not any(name in text for text in config.values() for name in _MISSING)]
SCHEMAS = {"full": (FULL, CASES), "bare": (BARE, _BARE_CASES), "other": (OTHER, CASES)}
"""The schemas of the events, and the configurations. Debezium fails at a struct that is not there."""


def records(schema: dict[str, Any]) -> list[dict[str, Any]]:
    names = [part["field"] for part in schema["fields"]]
    values = [None if one is None else {name: one[name] for name in names} for one in EVENTS]
    return [
        {"topic": "shop.public.orders", "partition": 0, "offset": 10 + n, "timestamp": 1_709_210_096_789,
         "key": {"schema": KEY, "payload": {"id": 1}}, "headers": [["a", "1x"]],
         "value": None if value is None else {"schema": schema, "payload": value}}
        for n, value in enumerate(values)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def answers() -> dict[str, list[list[dict[str, Any]]]]:
    cases = [
        {"type": TYPE, "config": config, "schemas": True, "records": records(schema)}
        for schema, configs in SCHEMAS.values()
        for config in configs
    ]
    found = iter(answers_of(cases, connect_classpath("jdbc")))
    return {name: list(itertools.islice(found, len(configs))) for name, (_, configs) in SCHEMAS.items()}


@pytest.mark.parametrize("name", SCHEMAS)
def test_unwrapped_events_are_those_of_debezium(answers: dict[str, list[list[dict[str, Any]]]], name: str) -> None:
    schema, configs = SCHEMAS[name]
    wrong = []
    for config, expected in zip(configs, answers[name], strict=True):
        found = ours(TYPE, config, records(schema), schemas=True)
        for row, (one, other) in enumerate(zip(found, expected, strict=True)):
            if comparable(one, other) != comparable(other, other):
                wrong.append(f"{config} record {row}\n" + "\n".join(differences(one, other, "")))
    assert not wrong, "\n".join(wrong)
