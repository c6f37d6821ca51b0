"""Our metadata records have the bytes of Kafka's, for every kind and version."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.ids import uuid_from_text
from barnabas.protocol.wire.codec import encode
from barnabas.protocol.wire.schema import MessageStruct, schema_of
from barnabas.server.metadata.errors import MetadataRecordError
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import FRAME_VERSION, RECORDS, decode_record, encode_record, record_version

LINES = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka_records.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
KINDS = {schema_of(kind).name: kind for kind in RECORDS.values()}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def build(kind: type[MessageStruct], values: dict[str, Any]) -> MessageStruct:
    """Kafka's JSON of a message as one of our structs."""
    fields = {field.name: field for field in schema_of(kind).fields}
    given: dict[str, Any] = {}
    for name, value in values.items():
        field = fields[snake(name)]
        given[field.name] = convert(field.element if field.kind == "array" else field.kind, value)
    return kind(**given)


def convert(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [convert(kind, item) for item in value]
    if isinstance(kind, type):
        return build(kind, value)
    if value is None:
        return None
    if kind == "uuid":
        return uuid_from_text(value)
    if kind == "bytes":
        return base64.b64decode(value)
    return value


def test_every_kind_is_covered() -> None:
    assert len(RECORDS) == 26
    assert {line[0] for line in LINES} == set(KINDS)


@pytest.mark.parametrize("line", LINES, ids=[f"{line[0]}-v{line[1]}-{i % 2}" for i, line in enumerate(LINES)])
def test_bytes_equal_kafka(line: list[str]) -> None:
    name, version, text, hexadecimal = line
    kind = KINDS[name]
    record = build(kind, json.loads(text))
    framed = bytes([FRAME_VERSION, schema_of(kind).key, int(version)]) + encode(record, int(version))
    assert framed.hex() == hexadecimal
    read = decode_record(bytes.fromhex(hexadecimal))
    assert isinstance(read, MetadataRecord)
    assert read == record


@pytest.mark.parametrize(
    ("metadata_version", "expected"),
    [(7, (1, 1, 0, 0)), (8, (2, 1, 0, 0)), (17, (3, 2, 1, 1)), (23, (3, 2, 2, 2)), (30, (4, 3, 2, 2))],
)
def test_versions_follow_the_metadata_version(metadata_version: int, expected: tuple[int, ...]) -> None:
    names = ("RegisterBrokerRecord", "BrokerRegistrationChangeRecord", "PartitionRecord", "PartitionChangeRecord")
    assert tuple(record_version(KINDS[name], metadata_version) for name in names) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "too short"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x7f\x00", "type 127"),
        (b"\x01\x02\x09", "version 9"),
        (b"\x01\x02\x00\xff\xff\xff\xff\x7f", "cannot be read"),
    ],
)
def test_strange_bytes_are_refused_with_words(value: bytes, words: str) -> None:
    with pytest.raises(MetadataRecordError, match=words):
        decode_record(value)


def test_encode_record_uses_the_newest_level() -> None:
    record = KINDS["TopicRecord"](name="t")
    assert isinstance(record, MetadataRecord)
    assert encode_record(record)[:3] == bytes([1, 2, 0])
