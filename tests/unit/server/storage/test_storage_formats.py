"""Byte vectors of each file format: Kafka's files, our files, and corrupt files."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.records.errors import LogFileError
from barnabas.protocol.records.log_files import MetaProperties
from barnabas.server.storage.directory.checkpoints import decode_offsets, encode_offsets
from barnabas.server.storage.directory.identity import (
    leave_clean_shutdown,
    read_meta_properties,
    read_topic_id,
    take_clean_shutdown,
    write_topic_id,
)
from barnabas.server.storage.epochs import EpochEntry, LeaderEpochs
from barnabas.server.storage.errors import CorruptFileError, CorruptIndexError, CorruptSnapshotError, LogDirError
from barnabas.server.storage.names import marked_dir, offset_file, parse_offset_file, parse_partition_dir
from barnabas.server.storage.producers.snapshots import decode_snapshot, encode_snapshot
from barnabas.server.storage.producers.state import KnownBatch, ProducerEntry
from barnabas.server.storage.segments.indexes import OffsetIndex, TimeIndex
from barnabas.server.storage.segments.txn_index import TxnIndex
from barnabas.server.storage.values import AbortedTxn, TimestampOffset
from tests.unit.server.storage.memory_disk import MemoryDisk


class TestOffsetIndex:
    def test_bytes(self) -> None:
        index = OffsetIndex(100)
        index.append(105, 4096)
        index.append(300, 70_000)
        assert index.encode() == bytes.fromhex("00000005 00001000  000000c8 00011170")
        assert index.encode(1) == bytes.fromhex("000000c8 00011170")
        assert OffsetIndex.decode(100, index.encode(), 80_000).entries() == [(105, 4096), (300, 70_000)]

    def test_lookup_is_the_largest_entry_not_above(self) -> None:
        index = OffsetIndex(100)
        index.append(105, 4096)
        index.append(300, 70_000)
        assert [index.lookup(o) for o in (0, 100, 104, 105, 299, 300, 10**12)] == [0, 0, 0, 4096, 4096, 70_000, 70_000]

    def test_truncate(self) -> None:
        index = OffsetIndex(0)
        for i in range(1, 5):
            index.append(i * 10, i * 1000)
        index.written = 4
        index.truncate_to(30)
        assert index.entries() == [(10, 1000), (20, 2000)]
        assert index.written == 2

    @pytest.mark.parametrize(
        "data",
        [
            "00000005",
            "00000005 00001000 00000000 00000000",  # preallocated space that was never trimmed
            "00000005 00002000",  # beyond the log
            "00000005 00001000 00000004 00001100",
        ],
    )
    def test_corrupt(self, data: str) -> None:
        with pytest.raises(CorruptIndexError):
            OffsetIndex.decode(100, bytes.fromhex(data), 8192)

    def test_offsets_must_increase_and_fit(self) -> None:
        index = OffsetIndex(100)
        index.append(105, 4096)
        for offset in (105, 99, 100 + (1 << 31)):
            with pytest.raises(CorruptIndexError):
                index.append(offset, 5000)


class TestTimeIndex:
    def test_bytes(self) -> None:
        index = TimeIndex(100)
        index.maybe_append(1_700_000_000_000, 105)
        index.maybe_append(1_700_000_000_000, 120)  # no younger: left out
        index.maybe_append(1_700_000_000_001, 300)
        assert index.encode() == bytes.fromhex("0000018bcfe56800 00000005  0000018bcfe56801 000000c8")
        assert TimeIndex.decode(100, index.encode()).entries() == index.entries()

    def test_lookup(self) -> None:
        index = TimeIndex(100)
        index.maybe_append(1000, 105)
        index.maybe_append(2000, 300)
        assert index.lookup(999) == TimestampOffset(-1, 100)
        assert index.lookup(1999) == TimestampOffset(1000, 105)
        assert index.lookup(9999) == TimestampOffset(2000, 300)
        assert index.last_entry == TimestampOffset(2000, 300)

    @pytest.mark.parametrize("data", ["00", "00000000000003e8 00000005 0000000000000000 00000000"])
    def test_corrupt(self, data: str) -> None:
        with pytest.raises(CorruptIndexError):
            TimeIndex.decode(100, bytes.fromhex(data))


class TestTxnIndex:
    def test_bytes(self) -> None:
        index = TxnIndex(0)
        index.append(AbortedTxn(producer_id=7, first_offset=3, last_offset=9, last_stable_offset=10))
        data = bytes.fromhex("0000 0000000000000007 0000000000000003 0000000000000009 000000000000000a")
        assert index.encode() == data
        assert TxnIndex.decode(0, data).txns == index.txns

    def test_collect_stops_at_the_last_stable_offset(self) -> None:
        index = TxnIndex(0)
        first, second = AbortedTxn(1, 0, 5, 4), AbortedTxn(2, 4, 9, 10)
        index.append(first)
        index.append(second)
        assert index.collect(0, 3) == ([first], True)
        assert index.collect(6, 20) == ([second], False)
        assert index.collect(0, 20) == ([first, second], False)

    @pytest.mark.parametrize("data", ["00" * 33, "0001" + "00" * 32, "0000" + "00" * 7 + "01" + "ff" * 24])
    def test_corrupt(self, data: str) -> None:
        with pytest.raises(CorruptIndexError):
            TxnIndex.decode(5, bytes.fromhex(data))


class TestProducerSnapshot:
    ENTRY = ProducerEntry(4000, 2, 5, 1234, 77, [KnownBatch(9, 79, 4, 1200)])

    def test_bytes(self) -> None:
        data = encode_snapshot([self.ENTRY])
        assert data[:2] == b"\x00\x01"
        assert data[6:] == bytes.fromhex(
            "00000001 0000000000000fa0 0002 00000009 000000000000004f 00000004 00000000000004d2 00000005"
            "000000000000004d"
        )
        (entry,) = decode_snapshot(data, "x")
        assert (entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.txn_first_offset) == (4000, 2, 5, 77)
        assert entry.batches == [KnownBatch(9, 79, 4, 1234)]

    def test_earlier_batches_follow_kafkas_part_of_the_snapshot(self) -> None:
        window = [KnownBatch(n, 70 + n, 0, 1100 + n) for n in range(5, 10)]
        busy = ProducerEntry(4000, 2, 5, 1109, 77, window)
        data = encode_snapshot([ProducerEntry(1, 0, 3, 50), self.ENTRY, busy])
        plain = 10 + 3 * 46
        assert data[10:plain] == encode_snapshot([ProducerEntry(1, 0, 3, 50), self.ENTRY, _newest_only(busy)])[10:]
        assert len(data) == plain + 11 + 4 * 28
        nobody, one, five = decode_snapshot(data, "x")
        assert nobody.batches == []
        assert len(one.batches) == 1
        assert five.batches == window
        for length in (plain + 5, plain + 20, len(data) - 1):
            with pytest.raises(CorruptSnapshotError):
                decode_snapshot(_with_crc(data[:length]), "x")
        with pytest.raises(CorruptSnapshotError, match="unknown bytes"):
            decode_snapshot(_with_crc(data[:plain] + b"something else"), "x")
        for owner in (-1, 0, 3):
            with pytest.raises(CorruptSnapshotError, match=f"of producer {owner} of 3"):
                decode_snapshot(_with_crc(data[: plain + 11] + struct.pack(">i", owner) + data[plain + 15 :]), "x")

    def test_empty(self) -> None:
        assert len(encode_snapshot([])) == 10
        assert decode_snapshot(encode_snapshot([]), "x") == []

    def test_producer_with_only_a_marker_has_no_batches(self) -> None:
        (entry,) = decode_snapshot(encode_snapshot([ProducerEntry(1, 0, 3, 50)]), "x")
        assert entry.batches == []

    @pytest.mark.parametrize("at", [0, 1, 3, 9, 20, 40])
    def test_flipped_byte_is_detected(self, at: int) -> None:
        data = bytearray(encode_snapshot([self.ENTRY]))
        data[at] ^= 0x40
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(data), "x")

    @pytest.mark.parametrize("length", [0, 9, 30])
    def test_truncated_snapshot_is_corrupt(self, length: int) -> None:
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(encode_snapshot([self.ENTRY])[:length], "x")


def _newest_only(entry: ProducerEntry) -> ProducerEntry:
    alone = entry.copy()
    del alone.batches[:-1]
    return alone


def _with_crc(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


class TestCheckpoints:
    def test_offsets(self) -> None:
        offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 0}
        data = b"0\n2\na 10 0\nb 1 7\n"
        assert encode_offsets(offsets) == data
        assert decode_offsets(data, "x") == offsets
        assert decode_offsets(b"0\n0\n", "x") == {}

    @pytest.mark.parametrize(
        "data", [b"", b"0", b"1\n0\n", b"0\n2\na 1 1\n", b"0\n1\na 1\n", b"0\nx\n", b"\xff\xfe\n1\n"]
    )
    def test_corrupt(self, data: bytes) -> None:
        with pytest.raises(CorruptFileError):
            decode_offsets(data, "x")

    def test_leader_epochs(self) -> None:
        data = b"0\n2\n0 0\n3 100\n"
        epochs = LeaderEpochs.decode(data, "x")
        assert epochs.entries == (EpochEntry(0, 0), EpochEntry(3, 100))
        assert epochs.encode() == data
        assert not epochs.changed

    def test_leader_epochs_torn_in_the_last_number(self) -> None:
        """A power failure left "4 155" as "4 15". With that offset the epoch would begin too early and remove earlier
        epochs."""
        with pytest.raises(CorruptFileError, match="incomplete last line"):
            LeaderEpochs.decode(b"0\n3\n0 0\n2 137\n4 15", "x")


class TestIdentity:
    META = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 7, UUID(int=1 << 100))

    def test_meta_properties(self) -> None:
        text = self.META.encode().decode()
        assert text.splitlines() == [
            "version=1",
            "cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
            "node.id=7",
            "directory.id=AAAAEAAAAAAAAAAAAAAAAA",
        ]
        assert MetaProperties.decode(text.encode(), "x") == self.META

    def test_as_kafka_writes_it(self) -> None:
        text = "#\n#Tue Aug 04 10:00:00 UTC 2026\nnode.id=7\ndirectory.id=AAAAEAAAAAAAAAAAAAAAAA\nversion=1\n"
        assert MetaProperties.decode((text + "cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n").encode(), "x") == self.META

    @pytest.mark.parametrize("text", ["version=2\n", "version=1\nnode.id=1\n", "version=1\ncluster.id=a\nnode.id=x\n"])
    def test_corrupt(self, text: str) -> None:
        with pytest.raises(LogFileError):
            MetaProperties.decode(text.encode(), "x")
        disk = MemoryDisk()
        disk.mkdir("/d")
        disk.put("/d/meta.properties", text.encode())
        with pytest.raises(CorruptFileError):
            read_meta_properties(disk, "/d")

    def test_topic_id(self) -> None:
        disk = MemoryDisk()
        disk.mkdir("/d/t-0")
        assert read_topic_id(disk, "/d/t-0") is None
        write_topic_id(disk, "/d/t-0", UUID(int=1 << 100), durable=True)
        assert disk.files("/d/t-0") == {"partition.metadata": b"version: 0\ntopic_id: AAAAEAAAAAAAAAAAAAAAAA"}
        assert read_topic_id(disk, "/d/t-0") == UUID(int=1 << 100)
        for damaged in (b"", bytes(44), b"version: 0\ntopic_id: AAAAEAAA", b"version: 0\ntopic_id: " + 22 * b"A"):
            disk.put("/d/t-0/partition.metadata", damaged)
            with pytest.raises(CorruptFileError, match="it should have a topic id"):
                read_topic_id(disk, "/d/t-0")

    def test_clean_shutdown_marker_is_deleted_when_read(self) -> None:
        disk = MemoryDisk()
        disk.mkdir("/d")
        assert take_clean_shutdown(disk, "/d") == (False, -1)
        leave_clean_shutdown(disk, "/d", 42)
        assert disk.files("/d") == {".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":42}'}
        assert take_clean_shutdown(disk, "/d") == (True, 42)
        disk.lose_power()
        assert take_clean_shutdown(disk, "/d") == (False, -1)


class TestNames:
    def test_files(self) -> None:
        assert offset_file(42, ".log") == "00000000000000000042.log"
        assert parse_offset_file("00000000000000000042.timeindex") == (42, ".timeindex", "")
        assert parse_offset_file("00000000000000000042.log.swap") == (42, ".log", ".swap")
        for other in ("leader-epoch-checkpoint", "00000000000000000042-0000000001.checkpoint", "42.log", "x.log"):
            assert parse_offset_file(other) is None

    def test_directories(self) -> None:
        tp, unique = TopicPartition("a-b.c", 3), UUID(int=5)
        assert parse_partition_dir("a-b.c-3") == (tp, "")
        for mark in ("-delete", "-future", "-stray"):
            assert parse_partition_dir(marked_dir(tp, unique, mark)) == (tp, mark)
        for other in ("lost+found", "x", "-", "a-b"):
            assert parse_partition_dir(other) is None

    def test_long_topic_names(self) -> None:
        tp = TopicPartition("t" * 249, 0)
        assert len(marked_dir(tp, UUID(int=5), "-delete")) == 255
        with pytest.raises(LogDirError):
            marked_dir(tp, UUID(int=5), "-future")
