"""Our bytes beside those of kafka-clients 4.3.1: what we build equals them, what they built we read."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from barnabas.core.hashing import murmur2
from barnabas.protocol.records.batch import HEADER_SIZE, Record, TimestampType, check_crc, iter_records, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, rebuild_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.control import (
    NO_DIRECTORY,
    EndTxn,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    build_control_batch,
    build_end_txn_marker,
    parse_control,
)

_LINES = (Path(__file__).parents[3] / "golden/records/kafka_clients_4_3_1.txt").read_text().splitlines()
_TEXT = dict(line.split(" ", 1) for line in _LINES if not line.startswith("#"))

HEADERS = (("trace", b"abc"), ("näme✓", None), ("", b""))
PLAIN = [
    SimpleRecord(b"k1", b"v1", 1700000000000),
    SimpleRecord(None, b"value two", 1700000000007),
    SimpleRecord(b"k3", None, 1699999999000),
    SimpleRecord(b"", b"", 1700000100000, HEADERS),
]
REPETITIVE = [SimpleRecord(b"k", b"abc" * 40, 5), SimpleRecord(b"k", b"abc" * 40, 6)]


def java(name: str) -> bytes:
    return bytes.fromhex(_TEXT[name])


def opened(batch: bytes) -> list[Record]:
    header = read_header(batch)
    assert header.size == len(batch)
    check_crc(batch, 0, header)
    return list(iter_records(batch, 0, header))


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("plain", build_batch(PLAIN)),
        ("no_timestamp", build_batch([SimpleRecord(b"k", b"v")])),
        (
            "idempotent",
            build_batch(PLAIN, base_offset=1000, producer_id=4711, producer_epoch=3, base_sequence=17, leader_epoch=9),
        ),
        (
            "transactional",
            build_batch(PLAIN, producer_id=4711, producer_epoch=3, base_sequence=2147483646, transactional=True),
        ),
        (
            "log_append_time",
            build_batch(
                [SimpleRecord(b"a", b"b", 100), SimpleRecord(b"c", b"d", 200)],
                base_offset=5,
                timestamp_type=TimestampType.LOG_APPEND_TIME,
                log_append_time_ms=9000,
            ),
        ),
    ],
)
def test_plain_batches_are_the_same_bytes(name: str, ours: bytes) -> None:
    assert ours.hex() == java(name).hex()


def test_three_hundred_records_have_the_same_crc() -> None:
    records = [SimpleRecord(b"key-%d" % i, bytes(i % 90), 1000 + i * 37) for i in range(300)]
    assert build_batch(records)[:HEADER_SIZE] == java("many_header")


def test_a_java_batch_opens_to_its_records() -> None:
    expected = [Record(i, r.timestamp, r.key, r.value, tuple(r.headers)) for i, r in enumerate(PLAIN)]
    assert opened(java("plain")) == expected
    header = read_header(java("transactional"))
    assert (header.last_sequence, header.is_transactional, header.is_control) == (1, True, False)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_java_compressed_batches_open(name: str) -> None:
    batch = java(name)
    assert read_header(batch).codec is CompressionType[name.upper()]
    assert opened(batch) == [Record(0, 5, b"k", b"abc" * 40), Record(1, 6, b"k", b"abc" * 40)]


def test_log_append_time_is_every_records_timestamp() -> None:
    assert [r.timestamp for r in opened(java("log_append_time"))] == [9000, 9000]


def test_a_compacted_batch_with_gaps_and_a_delete_horizon_is_rebuilt_to_the_byte() -> None:
    batch = java("delete_horizon_gaps")
    header = read_header(batch)
    assert header.delete_horizon_ms == 7000
    records = opened(batch)
    assert records == [Record(52, 1000, b"a", None), Record(57, 1500, b"c", b"d")]
    assert rebuild_batch(header, records) == batch
    without = header._replace(attributes=header.attributes & ~0x40)
    assert rebuild_batch(without, records, delete_horizon_ms=7000) == batch


D1 = UUID(int=(1 << 64) | 2)


@pytest.mark.parametrize(
    ("name", "offset", "value"),
    [
        (
            "leader_change",
            0,
            LeaderChange(2, ((1, NO_DIRECTORY), (2, NO_DIRECTORY)), ((2, NO_DIRECTORY),)),
        ),
        ("snapshot_header", 0, SnapshotHeader(77)),
        ("snapshot_footer", 9, SnapshotFooter()),
        ("kraft_version", 1, KRaftVersion(1)),
        ("kraft_voters", 2, KRaftVoters((Voter(1, D1, (("CONTROLLER", "localhost", 49093),), 0, 1),))),
    ],
)
def test_control_batches_are_the_same_bytes(name: str, offset: int, value: LeaderChange) -> None:
    ours = build_control_batch(value, timestamp=99, base_offset=offset, leader_epoch=5)
    assert ours.hex() == java(name).hex()
    assert [parse_control(record) for record in opened(java(name))] == [value]


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_are_the_same_bytes(commit: bool) -> None:
    theirs = java("commit" if commit else "abort")
    marker = EndTxn(commit, 8)
    ours = build_end_txn_marker(
        marker, producer_id=4711, producer_epoch=3, timestamp=1234, base_offset=20, leader_epoch=6
    )
    assert ours == theirs
    assert [parse_control(record) for record in opened(theirs)] == [marker]


def test_murmur2_agrees() -> None:
    keys = ["", "a", "ab", "abc", "abcd", "a-little-bit-long-string", "äöü", "21", "foobar"]
    assert [murmur2(key.encode()) for key in keys] == [int(v) & 0xFFFFFFFF for v in _TEXT["murmur2"].split()]
