"""Codec: metadata snapshots, `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` (KIP-630).

A snapshot is record batches like the log's: a header control record, the records that make the image, a footer control
record. One without its footer was not finished, and is ignored. `bootstrap.checkpoint` and a snapshot at offset 0 are
what Kafka's `format` leaves behind: the records with which a new log begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.metadata.errors import MetadataError
from barnabas.metadata.ports import LoadedSnapshot
from barnabas.metadata.records import MetadataRecord, decode_record, encode_record
from barnabas.records.batch import iter_batches, iter_records
from barnabas.records.build import SimpleRecord, build_batch
from barnabas.records.control import SnapshotFooter, SnapshotHeader, build_control_batch, parse_control
from barnabas.storage.errors import StorageError
from barnabas.storage.fs import Access, FileSystem

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
_RECORDS_PER_BATCH: Final = 1024
_KEPT: Final = 2
"""Snapshots kept on disk: the newest, and one more in case that one proves damaged."""


def latest_snapshot(fs: FileSystem, path: str) -> str | None:
    """The name of the newest snapshot file that says something (one at offset 0 is part of formatting, not state)."""
    return max((name for name in _snapshots(fs, path) if int(name[:20]) > 0), default=None)


def _snapshots(fs: FileSystem, path: str) -> list[str]:
    return [name for name in fs.listdir(path) if _NAME.match(name)] if fs.exists(path) else []


def load_snapshot(fs: FileSystem, path: str, name: str) -> LoadedSnapshot:
    """Raises MetadataError for one that is not complete."""
    match = _NAME.match(name)
    assert match is not None
    records, timestamp_ms, complete = _read(fs, f"{path}/{name}")
    if not complete:
        raise MetadataError(
            f"The snapshot {path}/{name} has no footer: it was not finished. Remove it and start again."
        )
    return LoadedSnapshot(int(match[1]), int(match[2]), timestamp_ms, records)


def bootstrap_records(fs: FileSystem, log_dir: str, metadata_path: str) -> Sequence[MetadataRecord]:
    """The records that Kafka's `format` prepared for a new log; none if the directory was never formatted."""
    for path in (f"{log_dir}/{BOOTSTRAP_FILE}", f"{metadata_path}/{'0' * 20}-{'0' * 10}.checkpoint"):
        if fs.exists(path):
            records, _, _ = _read(fs, path)
            if records:
                return records
    return ()


def store_snapshot(fs: FileSystem, path: str, snapshot: LoadedSnapshot, metadata_version: int) -> None:
    """Write it beside the log, durable before it gets its name; older ones go."""
    name = f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"
    part = f"{path}/{name}.part"
    file = fs.open(part, Access.REPLACE)
    try:
        position = 0
        for batch in _batches(snapshot, metadata_version):
            position += file.write_at(position, [batch])
        file.sync()
    finally:
        file.close()
    fs.rename(part, f"{path}/{name}")
    fs.sync_dir(path)
    for old in sorted(_snapshots(fs, path))[:-_KEPT]:
        fs.unlink(f"{path}/{old}")


def _batches(snapshot: LoadedSnapshot, metadata_version: int) -> Iterator[Buffer]:
    offset = 0
    now_ms = snapshot.timestamp_ms
    epoch = snapshot.epoch
    yield build_control_batch(SnapshotHeader(now_ms), timestamp=now_ms, base_offset=offset, leader_epoch=epoch)
    offset += 1
    for start in range(0, len(snapshot.records), _RECORDS_PER_BATCH):
        chunk = snapshot.records[start : start + _RECORDS_PER_BATCH]
        values = [SimpleRecord(None, encode_record(record, metadata_version), now_ms) for record in chunk]
        yield build_batch(values, base_offset=offset, leader_epoch=epoch)
        offset += len(chunk)
    yield build_control_batch(SnapshotFooter(), timestamp=now_ms, base_offset=offset, leader_epoch=epoch)


def _read(fs: FileSystem, path: str) -> tuple[list[MetadataRecord], int, bool]:
    """(records, timestamp of the header, whether there was a footer)."""
    try:
        file = fs.open(path, Access.READ)
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
    except StorageError as error:
        raise MetadataError(f"The snapshot {path} cannot be read: {error}") from error
    records: list[MetadataRecord] = []
    timestamp_ms = -1
    complete = False
    for position, header in iter_batches(data):
        for record in iter_records(data, position, header):
            if not header.is_control:
                if record.value is not None:
                    records.append(decode_record(record.value))
                continue
            control = parse_control(record)
            if isinstance(control, SnapshotHeader):
                timestamp_ms = control.last_contained_log_timestamp
            complete = complete or isinstance(control, SnapshotFooter)
    return records, timestamp_ms, complete
