"""The dump of segment and index files."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.cli.logs.decoders import as_json, metadata_record, remote_log_record, share_state_record
from barnabas.cli.logs.dump import DumpOptions, dump_file
from barnabas.protocol.records.batch import Record
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.wire.remote_log_metadata import (
    RemotePartitionDeleteMetadataRecord,
    TopicIdPartitionEntry,
    encode_metadata,
)
from barnabas.server.coordination.log_format import CoordinatorRecord
from barnabas.server.coordination.share.records import FORMAT, ShareUpdateKey, ShareUpdateValue, StateBatchSchema

BATCH = build_batch(
    [SimpleRecord(b"k", b"v", 1000, (("h", b"x"),)), SimpleRecord(None, None, 1001)],
    base_offset=10,
    producer_id=5,
    producer_epoch=1,
    base_sequence=3,
    leader_epoch=2,
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000010.log"
    path.write_bytes(BATCH)
    return path


def test_dump_log_prints_batches_and_records(log: Path) -> None:
    lines = list(dump_file(log, DumpOptions(records=True, payload=True)))
    assert lines[:2] == [f"Dumping {log}", "Log starting offset: 10"]
    assert lines[2].startswith(
        "baseOffset: 10 lastOffset: 11 count: 2 baseSequence: 3 lastSequence: 4 producerId: 5 producerEpoch: 1 "
        "partitionLeaderEpoch: 2 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: 1001 size: {len(BATCH)} magic: 2 compresscodec: none crc: "
    )
    assert lines[2].endswith("isvalid: true")
    assert lines[3:] == [
        "| offset: 10 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 3 headerKeys: [h] key: k payload: v",
        "| offset: 11 CreateTime: 1001 keySize: -1 valueSize: -1 sequence: 4 headerKeys: []",
    ]


def test_dump_log_can_print_only_keys_and_values(log: Path) -> None:
    lines = list(dump_file(log, DumpOptions(records=True, payload=True, metadata=False)))
    assert lines[3:] == ["| key: k payload: v", "|"]


def test_dump_log_reports_a_corrupt_batch_and_a_truncated_end(log: Path) -> None:
    damaged = bytearray(BATCH + BATCH[:20])
    damaged[70] ^= 1
    log.write_bytes(damaged)
    lines = list(dump_file(log, DumpOptions()))
    assert lines[2].endswith("isvalid: false")
    assert lines[3] == f"Found 20 invalid bytes at the end of {log.name}"


def test_dump_log_prints_transaction_markers(log: Path) -> None:
    log.write_bytes(build_end_txn_marker(EndTxn(True, 9), producer_id=1, producer_epoch=0, timestamp=5, base_offset=10))
    assert list(dump_file(log, DumpOptions(records=True)))[-1].endswith("endTxnMarker: COMMIT coordinatorEpoch: 9")


def test_dump_log_prints_index_entries_and_mismatches(log: Path) -> None:
    index = log.with_suffix(".index")
    index.write_bytes(struct.pack(">ii", 1, 0) + bytes(16))
    assert list(dump_file(index, DumpOptions())) == [f"Dumping {index}", "offset: 11 position: 0"]
    index.write_bytes(struct.pack(">ii", 0, 0))
    assert list(dump_file(index, DumpOptions(index_only=True)))[2:] == ["  Index offset: 10, log offset: 11"]
    times = log.with_suffix(".timeindex")
    times.write_bytes(struct.pack(">qiqi", 2000, 0, 1000, 1))
    assert list(dump_file(times, DumpOptions()))[1:] == [
        "timestamp: 2000 offset: 10",
        "timestamp: 1000 offset: 11",
        f"Found out of order timestamp in :{times}",
        "  Index timestamp: 1000, Previously indexed timestamp: 2000",
    ]


def test_dump_rejects_files_that_are_not_log_files(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txt"
    path.touch()
    with pytest.raises(ValueError, match=r"not a \.log, \.index"):
        list(dump_file(path, DumpOptions()))
    with pytest.raises(ValueError, match="must begin with its base offset"):
        list(dump_file(tmp_path / "orders.log", DumpOptions()))


def test_metadata_records_are_decoded_as_kafkas_json() -> None:
    from barnabas.server.metadata.records.codec import encode_record
    from barnabas.server.metadata.records.other import FeatureLevelRecord

    value = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=30))
    assert metadata_record(Record(0, 0, None, value)) == (
        ' payload: {"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":30}}'
    )
    assert "not readable" in metadata_record(Record(0, 0, None, b"\xff\xff\xff"))


def test_tagged_fields_are_shown_only_when_set() -> None:
    from barnabas.protocol.wire.messages.fetch import FetchRequest

    assert "clusterId" not in as_json(FetchRequest(), 12)
    assert as_json(FetchRequest(cluster_id="c"), 12)["clusterId"] == "c"


def test_records_of_share_group_states_are_decoded() -> None:
    topic_id = UUID(int=1)
    value = ShareUpdateValue(
        snapshot_epoch=3,
        leader_epoch=1,
        start_offset=7,
        state_batches=[StateBatchSchema(first_offset=7, last_offset=8, delivery_state=2, delivery_count=1)],
    )
    written = FORMAT.encode(CoordinatorRecord(ShareUpdateKey(group_id="g", topic_id=topic_id, partition=4), value))
    assert share_state_record(Record(0, 0, written.key, written.value)) == (
        ' key: {"type":"1","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAQ","partition":4}} payload: '
        '{"version":"0","data":{"snapshotEpoch":3,"leaderEpoch":1,"startOffset":7,'
        '"stateBatches":[{"firstOffset":7,"lastOffset":8,"deliveryState":2,"deliveryCount":1}]}}'
    )
    assert share_state_record(Record(0, 0, written.key, None)).endswith(" payload: <DELETE>")


def test_records_of_remote_segments_are_decoded() -> None:
    message = RemotePartitionDeleteMetadataRecord(
        topic_id_partition=TopicIdPartitionEntry(name="t", id=UUID(int=1), partition=2),
        broker_id=1,
        event_timestamp_ms=5,
        remote_partition_delete_state=0,
    )
    assert remote_log_record(Record(0, 0, None, encode_metadata(message))) == (
        ' payload: {"type":"REMOTE_PARTITION_DELETE_METADATA_RECORD","version":0,"data":{"topicIdPartition":'
        '{"name":"t","id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2},"brokerId":1,"eventTimestampMs":5,'
        '"remotePartitionDeleteState":0}}'
    )
    assert remote_log_record(Record(0, 0, None, b"\x09")).startswith(" (not readable: ")
