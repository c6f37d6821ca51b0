"""The events of remote segments have the bytes of Kafka's RemoteLogMetadataSerde."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.tiering.errors import RemoteMetadataError
from barnabas.server.tiering.records import decode_event, encode_event, metadata_partition
from barnabas.server.tiering.values import (
    PartitionDeleteState,
    RemoteLogEvent,
    RemotePartition,
    RemotePartitionDelete,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

LINES: Final[Sequence[Sequence[str]]] = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka_remote_log_metadata.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
ORDERS = RemotePartition(UUID("01234567-89ab-cdef-fedc-ba9876543210"), 7, "orders")
ID = RemoteSegmentId(ORDERS, UUID("11111111-2222-2222-3333-333344444444"))
EPOCHS = (EpochEntry(0, 100), EpochEntry(3, 150))

EVENTS: Final[dict[str, RemoteLogEvent]] = {
    "segment": RemoteSegment(ID, 100, 199, 5, 1700000000123, 1700000001000, EPOCHS, 1048576),
    "segment_txn_index_empty": RemoteSegment(ID, 100, 199, 5, -1, 1700000001000, EPOCHS, 1048576, txn_index_empty=True),
    "segment_custom": RemoteSegment(
        ID, 0, 0, 1, 0, 2, (EpochEntry(9, 0),), 77, b"\1\2\3", RemoteSegmentState.COPY_SEGMENT_FINISHED
    ),
    "update_copy_segment_finished": RemoteSegmentUpdate(
        ID, 6, 1700000002000, RemoteSegmentState.COPY_SEGMENT_FINISHED, b"\4"
    ),
    "update_delete_segment_started": RemoteSegmentUpdate(
        ID, 6, 1700000002000, RemoteSegmentState.DELETE_SEGMENT_STARTED
    ),
    "update_delete_segment_finished": RemoteSegmentUpdate(
        ID, 6, 1700000002000, RemoteSegmentState.DELETE_SEGMENT_FINISHED
    ),
    "partition_delete_partition_marked": RemotePartitionDelete(
        ORDERS, 6, 1700000003000, PartitionDeleteState.DELETE_PARTITION_MARKED
    ),
    "partition_delete_partition_started": RemotePartitionDelete(
        ORDERS, 6, 1700000003000, PartitionDeleteState.DELETE_PARTITION_STARTED
    ),
    "partition_delete_partition_finished": RemotePartitionDelete(
        ORDERS, 6, 1700000003000, PartitionDeleteState.DELETE_PARTITION_FINISHED
    ),
}


def kafka_lines(name: str) -> list[str]:
    return [rest[0] for kind, *rest in LINES if kind == name]


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_has_the_bytes_of_kafka(name: str) -> None:
    (expected,) = kafka_lines(name)
    assert encode_event(EVENTS[name]).hex() == expected
    assert decode_event(bytes.fromhex(expected)) == EVENTS[name]


def test_the_metadata_partition_is_that_of_kafka() -> None:
    rows = [line.split() for line in kafka_lines("partition_of")]
    assert len(rows) == 12
    for topic_id, partition, expected in rows:
        assert metadata_partition(RemotePartition(UUID(topic_id), int(partition), "x"), 50) == int(expected)


def test_the_transitions_of_states_are_those_of_kafka() -> None:
    segments = {f"{a:d} {b:d}" for a in RemoteSegmentState for b in RemoteSegmentState if a.may_become(b)}
    partitions = {f"{a:d} {b:d}" for a in PartitionDeleteState for b in PartitionDeleteState if a.may_become(b)}
    assert segments == set(kafka_lines("transition"))
    assert partitions == set(kafka_lines("partition_transition"))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "begins with nothing"),
        (b"\x02\x00\x00", "begins with 020000"),
        (b"\x01\x09\x00", "type 9 version 0 is unknown"),
        (b"\x01\x00\x05", "type 0 version 5 is unknown"),
        (b"\x01\x02\x00\x01", "RemotePartitionDeleteMetadataRecord cannot be read"),
        (bytes.fromhex(kafka_lines("partition_delete_partition_marked")[0])[:-2] + b"\x07\x00", "7 is not a valid"),
    ],
)
def test_a_record_that_is_no_event_is_rejected(value: bytes, reason: str) -> None:
    with pytest.raises(RemoteMetadataError, match=reason):
        decode_event(value)
