"""Codec: metadata snapshots, `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` (KIP-630).

A snapshot consists of record batches: a header control record (from kraft.version 1 on followed by control records with
the version and the voters, KIP-853), the records of the image, and a footer control record. A file without a footer is
incomplete. Kafka's `format` writes `bootstrap.checkpoint` and a snapshot at offset 0: the first records of a new log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import check_crc, iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import (
    ControlValue,
    SnapshotFooter,
    SnapshotHeader,
    build_control_batch,
    control_record,
    parse_control,
)
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.broker.quorum.batches import from_control, to_control
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.ports import LoadedSnapshot
from barnabas.server.metadata.records.codec import MetadataRecord, decode_record, encode_record
from barnabas.server.raft.machine.values import KRaftVersionControl, OffsetAndEpoch, Voters
from barnabas.server.storage.errors import FileMissingError
from barnabas.server.storage.fs import FileSystem, read_file

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
FORMATTED_FILE: Final = f"{'0' * 20}-{'0' * 10}.checkpoint"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
_RECORDS_PER_BATCH: Final = 1024


class SnapshotDamagedError(MetadataError):
    """The file is damaged or incomplete."""


class SnapshotContents(Struct, frozen=True):
    """A decoded snapshot. `voters` is None in a quorum of kraft.version 0."""

    records: Sequence[MetadataRecord]
    timestamp_ms: int = -1
    kraft_version: int = 0
    voters: Voters | None = None
    complete: bool = False

    def loaded(self, snapshot_id: OffsetAndEpoch) -> LoadedSnapshot:
        return LoadedSnapshot(snapshot_id.offset, snapshot_id.epoch, self.timestamp_ms, self.records)


def name_of(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def list_snapshots(fs: FileSystem, path: str) -> list[OffsetAndEpoch]:
    """The snapshots in a directory, ascending by offset. The one at offset 0 is left out: `format` wrote it."""
    found = [match for name in fs.listdir(path) if (match := _NAME.match(name))]
    ids = [OffsetAndEpoch(int(match[2]), int(match[1])) for match in found if int(match[1]) > 0]
    return sorted(ids, key=lambda snapshot_id: (snapshot_id.offset, snapshot_id.epoch))


def render_snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    timestamp_ms: int,
    metadata_version: int,
    kraft_version: int = 0,
    voters: Voters | None = None,
) -> Iterator[Buffer]:
    """Yield the batches of a snapshot, with up to 1,024 records each. `records` may be a generator."""
    head: list[ControlValue] = [SnapshotHeader(timestamp_ms)]
    if kraft_version > 0:
        head.append(to_control(KRaftVersionControl(kraft_version)))
        if voters is not None:
            head.append(to_control(voters))
    opening = [control_record(value, timestamp_ms) for value in head]
    yield build_batch(opening, base_offset=0, control=True, leader_epoch=epoch)
    offset = len(opening)
    rest = iter(records)
    while chunk := list(islice(rest, _RECORDS_PER_BATCH)):
        values = [SimpleRecord(None, encode_record(record, metadata_version), timestamp_ms) for record in chunk]
        yield build_batch(values, base_offset=offset, leader_epoch=epoch)
        offset += len(chunk)
    yield build_control_batch(SnapshotFooter(), timestamp=timestamp_ms, base_offset=offset, leader_epoch=epoch)


def parse_snapshot(data: Buffer, path: str) -> SnapshotContents:
    """Decode a snapshot; `complete` is False without a footer. Raises SnapshotDamagedError for invalid batches."""
    records: list[MetadataRecord] = []
    timestamp_ms = -1
    kraft_version = 0
    voters: Voters | None = None
    complete = False
    try:
        for position, header in iter_batches(data):
            check_crc(data, position, header)
            for record in iter_records(data, position, header):
                if not header.is_control:
                    if record.value is not None:
                        records.append(decode_record(record.value))
                    continue
                value = parse_control(record)
                control = from_control(value)
                if isinstance(value, SnapshotHeader):
                    timestamp_ms = value.last_contained_log_timestamp
                elif isinstance(control, KRaftVersionControl):
                    kraft_version = control.version
                elif isinstance(control, Voters):
                    voters = control
                complete = complete or isinstance(value, SnapshotFooter)
    except CorruptBatchError as error:
        raise SnapshotDamagedError(f"The snapshot {path} is damaged: {error}") from error
    return SnapshotContents(records, timestamp_ms, kraft_version, voters, complete)


def load_snapshot(fs: FileSystem, path: str, name: str) -> SnapshotContents:
    """Read and decode a snapshot. Raises SnapshotDamagedError if it is damaged or incomplete, StorageError."""
    contents = parse_snapshot(read_file(fs, f"{path}/{name}"), f"{path}/{name}")
    if not contents.complete:
        raise SnapshotDamagedError(f"The snapshot {path}/{name} has no footer, so it is incomplete.")
    return contents


def formatted_contents(fs: FileSystem, path: str) -> SnapshotContents:
    """The snapshot that Kafka's `format` wrote into the directory of the metadata log, with the voters (KIP-853)."""
    try:
        return parse_snapshot(read_file(fs, f"{path}/{FORMATTED_FILE}"), f"{path}/{FORMATTED_FILE}")
    except FileMissingError:
        return SnapshotContents(())


def bootstrap_records(fs: FileSystem, log_dir: str, metadata_path: str) -> Sequence[MetadataRecord]:
    """The first records of a new log, written by Kafka's `format`; empty if the directory was not formatted."""
    for path in (f"{log_dir}/{BOOTSTRAP_FILE}", f"{metadata_path}/{FORMATTED_FILE}"):
        if fs.exists(path):
            records = parse_snapshot(read_file(fs, path), path).records
            if records:
                return records
    return ()
