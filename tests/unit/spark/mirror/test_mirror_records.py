"""The records of MirrorMaker's internal topics, byte for byte."""

from __future__ import annotations

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.errors import MirrorRecordError
from barnabas.spark.mirror.records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    SourceOffset,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
    decode_source_offset,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
    encode_source_offset,
)


def test_a_heartbeat_has_both_aliases_and_a_version_before_its_time() -> None:
    heartbeat = Heartbeat("us-west", "eu", 1_700_000_000_000)
    key, value = encode_heartbeat(heartbeat)
    assert key.hex() == "000775732d77657374" + "00026575"
    assert value.hex() == "0000" + "0000018bcfe56800"
    assert decode_heartbeat(key, value) == heartbeat


def test_a_checkpoint_names_the_topic_of_the_target_cluster() -> None:
    checkpoint = Checkpoint("g", TopicPartition("A.t", 3), 100, 42, "m")
    key, value = encode_checkpoint(checkpoint)
    assert key.hex() == "000167" + "0003412e74" + "00000003"
    assert value.hex() == "0000" + "0000000000000064" + "000000000000002a" + "00016d"
    assert decode_checkpoint(key, value) == checkpoint


def test_an_offset_sync_has_no_version() -> None:
    sync = OffsetSync(TopicPartition("tö", 0), 2**40, -1)
    key, value = encode_offset_sync(sync)
    assert key.hex() == "000374c3b6" + "00000000"
    assert value.hex() == "0000010000000000" + "ffffffffffffffff"
    assert decode_offset_sync(key, value) == sync


def test_a_position_is_json_with_the_names_in_the_order_of_kafkas_connector() -> None:
    position = SourceOffset("A", TopicPartition("t", 0), 7)
    key, value = encode_source_offset(position)
    assert key == b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]'
    assert value == b'{"offset":7}'
    assert decode_source_offset(key, value) == position


def test_a_position_may_have_its_names_in_any_order() -> None:
    key = b'["MirrorSourceConnector", {"topic": "t", "partition": 2, "cluster": "A"}]'
    assert decode_source_offset(key, b'{"offset": 9}') == SourceOffset("A", TopicPartition("t", 2), 9)


@pytest.mark.parametrize("value", [None, b"null"])
def test_a_removed_position_has_no_offset(value: bytes | None) -> None:
    key, tombstone = encode_source_offset(SourceOffset("A", TopicPartition("t", 0), None))
    assert tombstone is None
    assert decode_source_offset(key, value) == SourceOffset("A", TopicPartition("t", 0), None)


def test_positions_of_other_connectors_are_passed_over() -> None:
    key = b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]'
    assert decode_source_offset(key, b'{"offset":0}') is None


def test_records_that_are_cut_short_or_too_new_are_refused() -> None:
    with pytest.raises(MirrorRecordError, match="cut short"):
        decode_heartbeat(b"\x00\x05ab", b"\x00\x00" + bytes(8))
    with pytest.raises(MirrorRecordError, match="version 1"):
        decode_heartbeat(b"\x00\x01A\x00\x01B", b"\x00\x01" + bytes(8))
    with pytest.raises(MirrorRecordError, match="extra bytes"):
        decode_offset_sync(b"\x00\x01t\x00\x00\x00\x00!", bytes(16))
    with pytest.raises(MirrorRecordError, match="not valid"):
        decode_source_offset(b"{", b'{"offset":0}')
    with pytest.raises(MirrorRecordError, match="longer"):
        encode_heartbeat(Heartbeat("x" * 40_000, "B", 0))
