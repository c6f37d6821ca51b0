"""Codec: encodes log entries and snapshots as record batches, in the format of the files of `__cluster_metadata`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.protocol.records.batch import check_crc, iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import SnapshotFooter, SnapshotHeader, build_control_batch, parse_control
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.image.small import METADATA_VERSION
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.records.codec import FeatureLevelRecord, MetadataRecord, decode_record, encode_record
from barnabas.server.quorum.zookeeper.layout import SnapshotInfo

ZNODE_COST_BYTES: Final = 2048
"""The assumed overhead of an entry, because ZooKeeper keeps every znode in memory with its name, times and hash table
entry. With this overhead, some ten thousand small changes make a snapshot due."""
_RECORDS_PER_BATCH: Final = 1024


def encode_batch(
    records: Sequence[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int, metadata_version: int
) -> bytes:
    values = [SimpleRecord(None, encode_record(record, metadata_version), timestamp_ms) for record in records]
    return bytes(build_batch(values, base_offset=base_offset, leader_epoch=epoch))


def decode_entry(data: bytes, offset: int) -> list[CommittedBatch]:
    """The batches of the entry at `offset`. Raises MetadataError if `data` is not a valid entry for this offset."""
    batches: list[CommittedBatch] = []
    start, end = offset, 0
    try:
        for position, header in iter_batches(data):
            if header.base_offset != offset:
                raise MetadataError(f"The metadata log has offset {header.base_offset} where {offset} should be.")
            check_crc(data, position, header)
            values = [record.value for record in iter_records(data, position, header)]
            records = tuple(decode_record(value) for value in values if value is not None)
            batches.append(
                CommittedBatch(
                    offset, header.partition_leader_epoch, header.max_timestamp, records, header.size + ZNODE_COST_BYTES
                )
            )
            offset = header.next_offset
            end = position + header.size
    except CorruptBatchError as error:
        raise MetadataError(f"The entry of the metadata log at offset {start} is damaged: {error}") from error
    if not batches or end != len(data):
        raise MetadataError(
            f"The entry of the metadata log at offset {start} is truncated: {end} of {len(data)} bytes are valid."
        )
    return batches


def encode_snapshot(snapshot: LoadedSnapshot, metadata_version: int, chunk_bytes: int) -> list[bytes]:
    """Encode a snapshot and split the bytes into chunks of at most `chunk_bytes`."""
    data = b"".join(_snapshot_batches(snapshot, metadata_version))
    return split(data, chunk_bytes)


def split(data: bytes, chunk_bytes: int) -> list[bytes]:
    return [data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes)]


def decode_snapshot(chunks: Sequence[bytes], info: SnapshotInfo) -> LoadedSnapshot:
    """Decode a snapshot from its chunks. Raises MetadataError if it is incomplete or damaged."""
    data = b"".join(chunks)
    records: list[MetadataRecord] = []
    complete = False
    try:
        for position, header in iter_batches(data):
            check_crc(data, position, header)
            for record in iter_records(data, position, header):
                if header.is_control:
                    complete = isinstance(parse_control(record), SnapshotFooter)
                elif record.value is not None:
                    records.append(decode_record(record.value))
    except CorruptBatchError as error:
        raise MetadataError(f"The metadata snapshot {info.name} is damaged: {error}") from error
    if not complete:
        raise MetadataError(f"The metadata snapshot {info.name} has no footer, so it is incomplete.")
    return LoadedSnapshot(info.end_offset, info.epoch, info.timestamp_ms, records)


def _snapshot_batches(snapshot: LoadedSnapshot, metadata_version: int) -> Iterator[bytes]:
    now_ms, epoch, offset = snapshot.timestamp_ms, snapshot.epoch, 1
    yield bytes(build_control_batch(SnapshotHeader(now_ms), timestamp=now_ms, base_offset=0, leader_epoch=epoch))
    for start in range(0, len(snapshot.records), _RECORDS_PER_BATCH):
        records = snapshot.records[start : start + _RECORDS_PER_BATCH]
        yield encode_batch(
            records, base_offset=offset, epoch=epoch, timestamp_ms=now_ms, metadata_version=metadata_version
        )
        offset += len(records)
    yield bytes(build_control_batch(SnapshotFooter(), timestamp=now_ms, base_offset=offset, leader_epoch=epoch))


def metadata_version_after(records: Sequence[MetadataRecord], before: int) -> int:
    """The metadata.version after `records`, if `before` was the version before."""
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            before = record.feature_level
    return before
