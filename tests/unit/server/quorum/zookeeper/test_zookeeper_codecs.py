"""What is written in ZooKeeper, and zookeeper.connect."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.core.config import ConfigError
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.records.codec import FeatureLevelRecord, NoOpRecord, TopicRecord
from barnabas.server.quorum.zookeeper.config import ZooKeeperConfig, parse_connect, read_zookeeper_config
from barnabas.server.quorum.zookeeper.entries import (
    ZNODE_COST_BYTES,
    decode_entry,
    decode_snapshot,
    encode_batch,
    encode_snapshot,
    metadata_version_after,
)
from barnabas.server.quorum.zookeeper.layout import (
    ControllerInfo,
    LogTail,
    SnapshotInfo,
    chunk_path,
    entry_offsets,
    entry_path,
    part_path,
    read_cluster_id,
    read_controller,
    read_controller_epoch,
    read_parts,
    read_tail,
    snapshot_name,
    write_broker,
    write_cluster_id,
    write_controller,
    write_parts,
    write_tail,
)

TOPICS = tuple(TopicRecord(name=f"t{number}", topic_id=UUID(int=number)) for number in range(3))


# ---- layout


def test_names_sort_as_numbers_do() -> None:
    assert entry_path(7) == "/barnabas/metadata/log/00000000000000000007"
    assert part_path(7, 3, 2) == "/barnabas/metadata/log/00000000000000000007-0000000003-000002"
    assert chunk_path(snapshot_name(12, 4), 1) == "/barnabas/metadata/snapshots/00000000000000000012-0000000004-000001"
    names = ["00000000000000000010", "00000000000000000007-0000000003-000002", "00000000000000000007"]
    assert entry_offsets(names) == [7, 10]


def test_tail_survives_encoding_and_decoding() -> None:
    tail = LogTail(epoch=3, end_offset=40, start_offset=10, snapshot=SnapshotInfo("name", 20, 2, 1_000, 4))
    assert read_tail(write_tail(tail)) == tail
    assert read_tail(write_tail(replace(tail, snapshot=None))) == replace(tail, snapshot=None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not valid JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"version":9}', "supports only 1"),
        (b'{"version":1,"epoch":3}', "the field 'snapshot' is missing"),
    ],
)
def test_invalid_tail_raises_metadata_error(data: bytes, said: str) -> None:
    with pytest.raises(MetadataError, match=said):
        read_tail(data)


def test_controller_znode_has_kafkas_fields_epoch_and_address() -> None:
    data = write_controller(ControllerInfo(2, 7, "host", 9093), 1_700_000_000_000)
    assert json.loads(data) == {
        "version": 2,
        "brokerid": 2,
        "timestamp": "1700000000000",
        "kraftControllerEpoch": -1,
        "epoch": 7,
        "host": "host",
        "port": 9093,
    }
    assert read_controller(data) == ControllerInfo(2, 7, "host", 9093)


def test_controller_znode_of_another_product_raises_metadata_error() -> None:
    kafkas = b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}'
    with pytest.raises(MetadataError, match=r"was not written by Barnabas.*zookeeper.connect=host:port/name"):
        read_controller(kafkas)
    with pytest.raises(MetadataError, match="/controller_epoch is not a number"):
        read_controller_epoch(b"one")


def test_broker_znode_has_kafkas_format() -> None:
    endpoints = [ListenerEndpoint("SSL", "a", 9094, "SSL"), ListenerEndpoint("PLAIN", "b", 9092)]
    assert json.loads(write_broker(endpoints, "r1", 5)) == {
        "version": 5,
        "host": "b",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "5",
        "endpoints": ["SSL://a:9094", "PLAIN://b:9092"],
        "listener_security_protocol_map": {"SSL": "SSL", "PLAIN": "PLAINTEXT"},
        "features": {},
        "rack": "r1",
    }
    assert json.loads(write_broker(endpoints[:1], None, 5))["host"] is None


def test_the_cluster_id() -> None:
    assert json.loads(write_cluster_id("abc")) == {"version": "1", "id": "abc"}
    assert read_cluster_id(write_cluster_id("abc")) == "abc"
    with pytest.raises(MetadataError, match="has no id"):
        read_cluster_id(b"{}")


# ---- entries


def test_entry_with_several_batches_is_decoded() -> None:
    first = encode_batch(TOPICS[:2], base_offset=5, epoch=2, timestamp_ms=10, metadata_version=30)
    second = encode_batch(TOPICS[2:], base_offset=7, epoch=2, timestamp_ms=11, metadata_version=30)
    assert decode_entry(first + second, 5) == [
        CommittedBatch(5, 2, 10, TOPICS[:2], len(first) + ZNODE_COST_BYTES),
        CommittedBatch(7, 2, 11, TOPICS[2:], len(second) + ZNODE_COST_BYTES),
    ]
    assert read_parts(first) is None
    assert read_parts(write_parts(5, 2, 2)) == (part_path(5, 2, 0), part_path(5, 2, 1))


def test_damaged_entries_and_snapshots_raise_metadata_error() -> None:
    batch = encode_batch(TOPICS, base_offset=5, epoch=2, timestamp_ms=10, metadata_version=30)
    with pytest.raises(MetadataError, match="offset 5 is truncated"):
        decode_entry(batch + batch[:20], 5)
    with pytest.raises(MetadataError, match="has offset 5 where 8 should be"):
        decode_entry(batch, 8)
    with pytest.raises(MetadataError, match="offset 5 is damaged"):
        decode_entry(batch[:-1] + b"\xff", 5)
    with pytest.raises(MetadataError, match="is truncated"):
        decode_entry(b"", 5)


def test_snapshot_is_decoded_from_all_its_chunks_only() -> None:
    records = [TopicRecord(name=f"t{n}", topic_id=UUID(int=n)) for n in range(3000)]
    snapshot = LoadedSnapshot(9_000, 4, 77, records)
    chunks = encode_snapshot(snapshot, 30, 10_000)
    info = SnapshotInfo(snapshot_name(9_000, 5), 9_000, 4, 77, len(chunks))
    assert len(chunks) > 5
    assert all(len(chunk) <= 10_000 for chunk in chunks)
    assert decode_snapshot(chunks, info) == snapshot
    with pytest.raises(MetadataError, match="has no footer"):
        decode_snapshot(chunks[:-1], info)
    with pytest.raises(MetadataError, match="is damaged"):
        decode_snapshot([chunks[1], *chunks[1:]], info)


def test_metadata_version_follows_feature_records() -> None:
    level = FeatureLevelRecord(name="metadata.version", feature_level=25)
    assert metadata_version_after([NoOpRecord(), level], 30) == 25
    assert metadata_version_after([NoOpRecord()], 30) == 30


# ---- settings


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a", "a:2181"),
        ("a:1,b", "a:1,b:2181"),
        (" a:1 , [::1]:2 /c/d/", "a:1,[::1]:2/c/d"),
        ("a:1/", "a:1"),
    ],
)
def test_connect_string_gets_default_ports(text: str, meant: str) -> None:
    assert parse_connect(text) == meant


@pytest.mark.parametrize("text", ["", "a:0", "a:70000", "a:b", "a:1,,b:2", "a:1//c", "::1", "a b:1"])
def test_invalid_connect_string_raises_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper.connect=.*Write host:port,host:port"):
        parse_connect(text)


def test_connection_timeout_defaults_to_the_session_timeout() -> None:
    assert read_zookeeper_config(_values({"zookeeper.connect": "a/b"})) == ZooKeeperConfig("a:2181/b", 18_000, 18_000)
    given = {
        "zookeeper.connect": "a",
        "zookeeper.session.timeout.ms": "6000",
        "zookeeper.connection.timeout.ms": "1000",
    }
    assert read_zookeeper_config(_values(given)) == ZooKeeperConfig("a:2181", 6_000, 1_000)


def _values(given: dict[str, str]) -> dict[str, object]:
    needed = {"node.id": "1", "process.roles": "broker", "controller.listener.names": "C", "log.dirs": "/x"}
    return dict(BROKER_CONFIGS.parse_all({**needed, **given}))
