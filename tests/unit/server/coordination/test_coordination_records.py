"""The records of `__consumer_offsets` are identical to Kafka's, byte for byte (see JavaGroupRecords.java)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from barnabas.server.coordination.group import records as rec
from barnabas.server.coordination.group.consumer.member import classic_protocol_metadata
from barnabas.server.coordination.group.shard import FORMAT
from barnabas.server.coordination.ports import LogRecord

ID = UUID(int=7)


def java_records() -> dict[str, LogRecord]:
    found = {}
    for line in (Path(__file__).parent / "java_group_records.txt").read_text().splitlines():
        name, key, value = line.split(" ")
        found[name] = LogRecord(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value))
    return found


JAVA = java_records()


@pytest.mark.parametrize("name", sorted(set(JAVA) - {"streams-group"}))
def test_reencoding_a_record_of_kafka_gives_the_same_bytes(name: str) -> None:
    decoded = FORMAT.decode(JAVA[name])
    assert decoded is not None
    assert FORMAT.encode(decoded) == JAVA[name]


def test_decoded_records_have_the_expected_fields() -> None:
    offset = FORMAT.decode(JAVA["offset-commit-v4"])
    assert offset is not None
    assert offset.key == rec.OffsetCommitKey(group="g", topic="t", partition=3)
    assert offset.value == rec.OffsetCommitValue(
        offset=42, leader_epoch=5, metadata="note", commit_timestamp=1000, topic_id=ID
    )
    tombstone = FORMAT.decode(JAVA["offset-commit-tombstone"])
    assert tombstone is not None
    assert tombstone.value is None

    current = FORMAT.decode(JAVA["consumer-current"])
    assert current is not None
    assert current.value == rec.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4,
        previous_member_epoch=3,
        state=1,
        assigned_partitions=[rec.CurrentTopicPartitions(topic_id=ID, partitions=[1], assignment_epochs=[4])],
        partitions_pending_revocation=[rec.CurrentTopicPartitions(topic_id=ID, partitions=[2])],
    )


def test_a_member_of_the_new_protocol_has_no_classic_metadata() -> None:
    """Kafka writes this null, a varint in a tagged field, because its schema's default is an empty struct."""
    member = FORMAT.decode(JAVA["consumer-member-new-protocol"])
    assert member is not None
    assert isinstance(member.value, rec.ConsumerGroupMemberMetadataValue)
    assert member.value.classic_member_metadata is None
    value = FORMAT.encode(member).value
    assert value is not None
    assert value[-5:] == bytes.fromhex("0001000100")
    without_the_field = bytes(value[:-4]) + b"\0"
    earlier = FORMAT.decode(LogRecord(JAVA["consumer-member-new-protocol"].key, without_the_field))
    assert earlier is not None
    assert isinstance(earlier.value, rec.ConsumerGroupMemberMetadataValue)
    assert classic_protocol_metadata(earlier.value) is None


def test_value_versions_are_those_that_kafka_writes() -> None:
    offset = FORMAT.decode(JAVA["offset-commit-v4"])
    group = FORMAT.decode(JAVA["group-metadata-v3"])
    assert offset is not None
    assert group is not None
    for record, name in ((offset, "offset-commit-v4"), (group, "group-metadata-v3")):
        assert FORMAT.encode(type(record)(record.key, record.value)) == JAVA[name]


def test_unknown_kinds_and_newer_value_versions_decode_to_none() -> None:
    assert FORMAT.decode(JAVA["streams-group"]) is None
    newer = JAVA["offset-commit-v4"]
    assert newer.value is not None
    assert FORMAT.decode(LogRecord(newer.key, b"\x00\x05" + newer.value[2:])) is None


def test_offset_keys_of_kind_0_are_decoded() -> None:
    modern = JAVA["offset-commit-v3"]
    old = FORMAT.decode(LogRecord(b"\x00\x00" + modern.key[2:], modern.value))
    assert old == FORMAT.decode(modern)
