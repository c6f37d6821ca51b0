"""Reads topics of change events, checks that every change of each row is there once and in order, and replays them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.system.connectors.typed_columns import TypedColumn

Row = dict[str, Any]
UNAVAILABLE = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")


@dataclass(frozen=True)
class Found:
    """A record of a topic."""

    partition: int
    offset: int
    key: str
    value: str | None
    headers: dict[str, str]


def read_topic(servers: str, topic: str) -> list[Found]:
    """All committed records of a topic, partition by partition."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    found: list[Found] = []
    for partition in sorted(partitions):
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                break
            value = message.value()
            headers = {name: text.decode() for name, text in message.headers() or ()}
            text = None if value is None else value.decode()
            found.append(Found(partition, message.offset(), message.key().decode(), text, headers))
    consumer.close()
    return found


def payload(text: str) -> Row:
    """A key, an event, or a key in a header; with schemas, they are beside their schemas."""
    found: Row = json.loads(text)
    event: Row = found.get("payload", found)
    return event


def differences(found: Mapping[int, Row], wanted: Mapping[int, Row]) -> list[str]:
    """What is wrong with rows by their keys, in words."""
    wrong = [f"{key} is missing" for key in sorted(wanted.keys() - found.keys())]
    wrong += [f"{key} is there" for key in sorted(found.keys() - wanted.keys())]
    for key in sorted(wanted.keys() & found.keys()):
        for name, value in wanted[key].items():
            if found[key].get(name) != value:
                wrong.append(f"{key}.{name} is {str(found[key].get(name))[:40]}, not {str(value)[:40]}")
    return wrong


def place_of(event: Row) -> tuple[int, ...]:
    """A position that grows with the changes of a row; on MySQL, with all changes."""
    source = event["source"]
    if "lsn" in source:
        # The position of the commit before and that of the change. Positions of changes alone are not in the order of
        # commits: an UPDATE of a key is logged before it waits for the transaction that deletes the row with that key.
        return tuple(int(position or 0) for position in json.loads(source["sequence"]))
    return int(source["file"].rpartition(".")[2]), source["pos"], source["row"]


def replay(records: list[Found], columns: dict[str, TypedColumn]) -> dict[int, Row]:
    """The rows by key that the events give, with the values as `TypedColumn.event` makes them.

    Fails if a change is missing, repeated, or not in the order of the row's history.
    """
    events = _checked_events(records)
    rows: dict[int, Row] = {}
    moved: dict[int, Row] = {}
    for key, event, headers in events:
        known = rows.get(key)
        match event["op"]:
            case "r":
                assert known is None, f"the row {key} is in the snapshot twice"
                rows[key] = event["after"]
            case "d":
                assert known is not None, f"the row {key} is deleted, and was not there: {event['source']}"
                del rows[key]
                if "__debezium.newkey" in headers:
                    moved[payload(headers["__debezium.newkey"])["id"]] = known
            case "c" if "__debezium.oldkey" in headers:
                assert known is None, f"the row {key} is created, and is there: {event['source']}"
                rows[key] = _follow(moved.pop(key), event)
            case "c":
                assert known is None, f"the row {key} is created, and is there: {event['source']}"
                assert event["after"]["version"] == 0
                rows[key] = event["after"]
            case "u":
                assert known is not None, f"the row {key} is updated, and is not there: {event['source']}"
                rows[key] = _follow(known, event)
    for row in rows.values():
        for name, column in columns.items():
            row[name] = column.event(row.get(name))
    return rows


def _follow(known: Row, event: Row) -> Row:
    """The row after a change. Its version must be the next one."""
    after: Row = event["after"]
    assert after["version"] == known["version"] + 1, f"changes are missing or repeated: {event['source']}"
    return {name: known[name] if value in UNAVAILABLE else value for name, value in after.items()}


def _checked_events(records: list[Found]) -> list[tuple[int, Row, dict[str, str]]]:
    """The events in the order of the database. Fails if an event is there twice, if the events of a key are not in the
    order of their positions in the partition, or if a delete has no tombstone behind it."""
    counts: Counter[Any] = Counter()
    last: dict[int, tuple[tuple[int, ...], str]] = {}
    homes: dict[int, int] = {}
    events = []
    for record in records:
        key = payload(record.key)["id"]
        assert homes.setdefault(key, record.partition) == record.partition
        if record.value is None:
            place, op = last[key]
            assert op == "d", f"the tombstone of {key} does not follow a delete"
            last[key] = place, "tombstone"
            continue
        event = payload(record.value)
        place = place_of(event)
        counts[key, event["op"], place] += 1
        before, op = last.get(key, ((), ""))
        assert op != "d", f"the delete of {key} has no tombstone"
        assert place >= before, f"the events of {key} are not in order: {before}, {place}"
        last[key] = place, event["op"]
        events.append((key, event, record.headers))
    assert max(counts.values()) == 1, f"an event is there twice: {counts.most_common(3)}"
    if len(set(homes.values())) > 1:
        events.sort(key=lambda one: (place_of(one[1]), one[1]["op"] == "c"))
    return events
