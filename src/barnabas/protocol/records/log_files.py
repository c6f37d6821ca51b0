"""Codec and Table: those files of a partition's directory that the broker and other programs read.

The broker's storage writes these files. Readers of closed segments (`readFrom=segments` of the Spark source) read the
files without the broker. A partition's directory holds, per segment, files named by the segment's base offset in 20
digits:

    .log .index .timeindex .txnindex     records and their indexes
    .snapshot                            producer state as of that offset (this one may lie between segments)

Each of these names may have a second suffix: `.deleted` (the file is unlinked after file.delete.delay.ms), `.cleaned`
(compaction is writing the file), `.swap` (compaction has completed the file, and is replacing the segments that the
file stands for). The formats, with big-endian numbers, are those of Kafka:

    .index      { relativeOffset int32 | position int32 } *                     (OffsetIndex)
    .txnindex   { version int16 (0) | producerId int64 | firstOffset int64 | lastOffset int64
                | lastStableOffset int64 } *                                    (AbortedTxn, TransactionIndex)
    .snapshot   version int16 (1) | crc uint32 (CRC-32C of what follows) | count int32 | count x
                { producerId int64 | epoch int16 | lastSequence int32 | lastOffset int64 | offsetDelta int32
                | timestamp int64 | coordinatorEpoch int32 | currentTxnFirstOffset int64 (-1: none) }
                                                                                (ProducerSnapshot)
    partition.metadata   version: 0, topic_id: <22 characters>                  (KIP-516)
    meta.properties      of the data directory: version=1, cluster.id, node.id, directory.id (KIP-858)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas.core.buffers import Buffer
from barnabas.core.ids import uuid_from_text, uuid_to_text
from barnabas.core.properties import parse_properties, render_properties
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.records.errors import LogFileError

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"

_OFFSET_NAME: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)((?:\.[a-z]+)?)\Z")
_TOPIC_ID: Final = re.compile(r"version: 0\s+topic_id: (\S{22})\s*\Z")
_INDEX_ENTRY: Final = Struct(">II")
_ABORTED: Final = Struct(">hqqqq")
_ABORTED_VERSION: Final = 0
_PRODUCERS_HEAD: Final = Struct(">hIi")
_PRODUCER: Final = Struct(">qhiqiqiq")
_PRODUCERS_VERSION: Final = 1
_CRC_END: Final = 6

ABORTED_TXN_BYTES: Final = _ABORTED.size
OFFSET_ENTRY_BYTES: Final = _INDEX_ENTRY.size


# -- names -------------------------------------------------------------------------------------------------------------


def offset_file(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log` for (42, ".log")."""
    return f"{base_offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str, str] | None:
    """(base offset, kind, second suffix or ""), or None if the name is not that of a segment's file."""
    found = _OFFSET_NAME.match(name)
    return (int(found[1]), found[2], found[3]) if found else None


# -- .index ------------------------------------------------------------------------------------------------------------


def position_before(index: Buffer, base_offset: int, offset: int) -> int:
    """A position in a closed segment at or before the batch that contains `offset`: that of the largest entry of the
    segment's offset index that is not above `offset`, or 0.
    """
    low, high = 0, len(index) // OFFSET_ENTRY_BYTES
    found = 0
    while low < high:
        middle = (low + high) // 2
        relative, position = _INDEX_ENTRY.unpack_from(index, middle * OFFSET_ENTRY_BYTES)
        if position and base_offset + relative <= offset:  # position 0: space that was preallocated and not trimmed
            found = position
            low = middle + 1
        else:
            high = middle
    return found


# -- .txnindex ---------------------------------------------------------------------------------------------------------


class AbortedTxn(NamedTuple):
    """One aborted transaction, as in the response to a read_committed Fetch and in `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset after the marker. A read that ends at or below it needs no later entry."""


def encode_aborted(txns: Iterable[AbortedTxn]) -> bytes:
    return b"".join(_ABORTED.pack(_ABORTED_VERSION, *txn) for txn in txns)


def decode_aborted(data: Buffer, base_offset: int) -> list[AbortedTxn]:
    """The entries, in the order of their markers. Raises LogFileError for entries that cannot belong to the segment."""
    if len(data) % _ABORTED.size:
        raise LogFileError(f"transaction index of {base_offset} has {len(data)} bytes, no multiple of {_ABORTED.size}")
    txns: list[AbortedTxn] = []
    last = base_offset - 1
    for version, *rest in _ABORTED.iter_unpack(data):
        txn = AbortedTxn(*rest)
        if version != _ABORTED_VERSION or txn.last_offset <= last:
            raise LogFileError(f"transaction index of {base_offset} contains an invalid entry: {txn}")
        last = txn.last_offset
        txns.append(txn)
    return txns


def overlapping(txns: Iterable[AbortedTxn], start_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
    """The transactions that overlap [start, end), and whether the indexes of later segments contain none."""
    found = []
    for txn in txns:
        if txn.last_offset >= start_offset and txn.first_offset < end_offset:
            found.append(txn)
        if txn.last_stable_offset >= end_offset:
            return found, True
    return found, False


# -- .snapshot ---------------------------------------------------------------------------------------------------------


class SnapshotProducer(NamedTuple):
    """One producer of a snapshot."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    """The last offset of the producer's newest batch; -1 if only markers are known."""
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int
    """The first offset of the producer's open transaction; -1 without one."""


def encode_snapshot_producers(producers: Sequence[SnapshotProducer], tail: bytes = b"") -> bytes:
    """A snapshot. `tail` follows the producers; Kafka ignores it."""
    count = _PRODUCERS_HEAD.pack(_PRODUCERS_VERSION, 0, len(producers))[_CRC_END:]
    covered = b"".join([count, *(_PRODUCER.pack(*producer) for producer in producers), tail])
    return _PRODUCERS_HEAD.pack(_PRODUCERS_VERSION, crc32c(covered), len(producers))[:_CRC_END] + covered


def decode_snapshot_producers(data: Buffer, what: str) -> tuple[list[SnapshotProducer], memoryview]:
    """The producers, and the bytes after them. Raises LogFileError."""
    if len(data) < _PRODUCERS_HEAD.size:
        raise LogFileError(f"{what} has only {len(data)} bytes")
    version, crc, count = _PRODUCERS_HEAD.unpack_from(data)
    if version != _PRODUCERS_VERSION:
        raise LogFileError(f"{what} has version {version}; only version {_PRODUCERS_VERSION} is known")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise LogFileError(f"{what} failed its CRC")
    end = _PRODUCERS_HEAD.size + count * _PRODUCER.size
    if count < 0 or len(data) < end:
        raise LogFileError(f"{what} should contain {count} producers and has {len(data)} bytes")
    rows = _PRODUCER.iter_unpack(memoryview(data)[_PRODUCERS_HEAD.size : end])
    return [SnapshotProducer._make(row) for row in rows], memoryview(data)[end:]


# -- identity ----------------------------------------------------------------------------------------------------------


class MetaProperties(msgspec.Struct, frozen=True):
    """The cluster and node of a data directory, and the id of the directory (KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: UUID | None

    def encode(self) -> bytes:
        values = {"version": "1", "cluster.id": self.cluster_id, "node.id": str(self.node_id)}
        if self.directory_id is not None:
            values["directory.id"] = uuid_to_text(self.directory_id)
        return render_properties(values).encode()

    @classmethod
    def decode(cls, data: bytes, what: str) -> MetaProperties:
        """Version 1, or 0 with `broker.id` (written by ZooKeeper-based brokers). Raises LogFileError."""
        try:
            values = parse_properties(data.decode())
            version = values.get("version", "0")
            if version not in ("0", "1"):
                raise LogFileError(f"{what} has version {version}; versions 0 and 1 are known")
            node_id = int(values["node.id"] if version == "1" else values["broker.id"])
            directory = values.get("directory.id")
            return cls(values["cluster.id"], node_id, uuid_from_text(directory) if directory else None)
        except KeyError as e:
            raise LogFileError(f"{what} lacks {e.args[0]}") from None
        except ValueError as e:
            raise LogFileError(f"{what} cannot be read: {e}") from None


def encode_topic_id(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def decode_topic_id(data: bytes) -> UUID | None:
    """The topic id in partition.metadata; None if the file is invalid. A crash can leave it empty."""
    found = _TOPIC_ID.match(data.decode("latin-1"))
    try:
        return uuid_from_text(found[1]) if found else None
    except ValueError:
        return None
