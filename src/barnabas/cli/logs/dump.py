"""Shell: prints the contents of a partition's files without a broker.

The output has the words and the order of Kafka's DumpLogSegments, so that scripts that parse its output keep working.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from barnabas.core.errors import KafkaError
from barnabas.core.ids import uuid_to_text
from barnabas.protocol.records.batch import BatchHeader, Record, check_crc, iter_batches, iter_records
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.control import (
    EndTxn,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    parse_control,
)

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What to print. `decode` converts a record of an internal topic to text (see `decoders`)."""

    records: bool = False
    payload: bool = False
    max_bytes: int = 1 << 62
    decode: Callable[[Record], str] | None = None
    metadata: bool = True
    """Print offset, timestamp and sizes before the payload of each record."""
    index_only: bool = False
    """Print only the errors of an index, not its entries."""


def dump_file(path: Path, options: DumpOptions) -> Iterator[str]:
    """The lines for one file; the file's suffix says its kind. Raises ValueError for a suffix that log files do not
    have.
    """
    yield f"Dumping {path}"
    base = _base_offset(path)
    match path.suffix:
        case ".log":
            yield f"Log starting offset: {base}"
            yield from dump_log(path, options)
        case ".checkpoint":
            epoch = int(path.name.split(".")[0].split("-")[1])
            yield f"Snapshot end offset: {base}, epoch: {epoch}"
            yield from dump_log(path, options)
        case ".index":
            yield from _dump_offset_index(path, base, options)
        case ".timeindex":
            yield from _dump_time_index(path, base, options)
        case ".txnindex":
            for version, producer, first, last, stable in _TXN_ENTRY.iter_unpack(_whole(path, _TXN_ENTRY.size)):
                yield (
                    f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} "
                    f"lastStableOffset: {stable}"
                )
        case _:
            raise ValueError(f"{path}: not a .log, .index, .timeindex, .txnindex or .checkpoint file")


def _dump_offset_index(path: Path, base: int, options: DumpOptions) -> Iterator[str]:
    """The entries of the index; then the wrong entries, whose offset is not the last offset of the batch at their
    position. The wrong entries are found only if the log file is in the same directory.
    """
    entries = list(_entries(path, _OFFSET_ENTRY))
    if not options.index_only:
        for relative, position in entries:
            yield f"offset: {base + relative} position: {position}"
    log = path.with_suffix(".log")
    if not log.exists():
        return
    data = memoryview(log.read_bytes())
    wrong = []
    for relative, position in entries:
        found = next((h for _, h in iter_batches(data[position:])), None) if position < len(data) else None
        if found is None or found.last_offset != base + relative:
            where = "nothing" if found is None else str(found.last_offset)
            wrong.append(f"  Index offset: {base + relative}, log offset: {where}")
    if wrong:
        yield f"Mismatches in :{path.absolute()}"
        yield from wrong


def _dump_time_index(path: Path, base: int, options: DumpOptions) -> Iterator[str]:
    """The entries of the index; then the entries whose timestamp is smaller than that of the entry before."""
    previous = -1
    wrong = []
    for timestamp, relative in _entries(path, _TIME_ENTRY):
        if not options.index_only:
            yield f"timestamp: {timestamp} offset: {base + relative}"
        if timestamp < previous:
            wrong.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
        previous = timestamp
    if wrong:
        yield f"Found out of order timestamp in :{path.absolute()}"
        yield from wrong


def _base_offset(path: Path) -> int:
    digits = path.name.split(".")[0].split("-")[0]
    if not digits.isdigit():
        raise ValueError(f"{path}: the name of a log file must begin with its base offset")
    return int(digits)


def _whole(path: Path, size: int) -> bytes:
    data = path.read_bytes()
    return data[: len(data) - len(data) % size]


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """The index entries. Stops at the first entry of zeros: an active index is preallocated, and its rest is filled
    with zeros.
    """
    previous: tuple[int, int] = (-1, -1)
    for index, (first, second) in enumerate(entry.iter_unpack(_whole(path, entry.size))):
        if index and (first, second) == (0, 0) and previous > (0, 0):
            return
        previous = (first, second)
        yield first, second


def dump_log(path: Path, options: DumpOptions) -> Iterator[str]:
    """One line per batch and, if `options.records`, one line per record below its batch."""
    data = memoryview(path.read_bytes())[: options.max_bytes]
    end = 0
    try:
        for position, header in iter_batches(data):
            yield batch_line(data, position, header)
            if options.records:
                for record in iter_records(data, position, header):
                    if options.metadata or not header.is_control:
                        yield record_line(header, record, options)
            end = position + header.size
    except KafkaError as error:
        yield f"Found a damaged batch at position {end}: {error}"
        return
    if end < len(data):
        yield f"Found {len(data) - end} invalid bytes at the end of {path.name}"


def batch_line(data: memoryview, position: int, header: BatchHeader) -> str:
    try:
        check_crc(data, position, header)
        valid = "true"
    except KafkaError:
        valid = "false"
    horizon = header.delete_horizon_ms
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_flag(header.is_transactional)} isControl: {_flag(header.is_control)} "
        f"deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
        f"position: {position} {header.timestamp_type.config_name}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} compresscodec: {CompressionType(header.codec).name.lower()} "
        f"crc: {header.crc & 0xFFFFFFFF} isvalid: {valid}"
    )


def record_line(header: BatchHeader, record: Record, options: DumpOptions) -> str:
    """The line of a record, from `| offset: ...` to its payload. Control records are always decoded."""
    key, value = record.key, record.value
    line = "|"
    if options.metadata:
        sequence = header.base_sequence + record.offset - header.base_offset if header.base_sequence >= 0 else -1
        line += (
            f" offset: {record.offset} {header.timestamp_type.config_name}: {record.timestamp} "
            f"keySize: {-1 if key is None else len(key)} valueSize: {-1 if value is None else len(value)} "
            f"sequence: {sequence & 0x7FFFFFFF if sequence >= 0 else -1} "
            f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
        )
    if header.is_control:
        return line + _control(record)
    if options.decode:
        return line + options.decode(record)
    if options.payload:
        line += "" if key is None else f" key: {_text(key)}"
        line += "" if value is None else f" payload: {_text(value)}"
    return line


def _control(record: Record) -> str:
    """The type and the fields of a control record, as DumpLogSegments prints them."""
    marker = parse_control(record)
    match marker:
        case EndTxn():
            kind = "COMMIT" if marker.commit else "ABORT"
            return f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
        case LeaderChange():
            change = {
                "version": marker.version,
                "leaderId": marker.leader_id,
                "voters": [_leader_voter(v, marker.version) for v in marker.voters],
                "grantingVoters": [_leader_voter(v, marker.version) for v in marker.granting_voters],
            }
            return f" LeaderChange: {_json(change)}"
        case SnapshotHeader():
            header = {"version": 0, "lastContainedLogTimestamp": marker.last_contained_log_timestamp}
            return f" SnapshotHeader {_json(header)}"
        case SnapshotFooter():
            return ' SnapshotFooter {"version":0}'
        case KRaftVersion():
            return f" KRaftVersion {_json({'version': 0, 'kRaftVersion': marker.kraft_version})}"
        case KRaftVoters():
            return f" KRaftVoters {_json({'version': 0, 'voters': [_voter(v) for v in marker.voters]})}"
        case _:
            return f" controlType: UNKNOWN({int.from_bytes((record.key or b'')[2:4], 'big')})"


def _leader_voter(voter: tuple[int, UUID], version: int) -> dict[str, object]:
    voter_id, directory = voter
    return {"voterId": voter_id} | ({"voterDirectoryId": uuid_to_text(directory)} if version else {})


def _voter(voter: Voter) -> dict[str, object]:
    supported = {
        "minSupportedVersion": voter.min_supported_version,
        "maxSupportedVersion": voter.max_supported_version,
    }
    return {
        "voterId": voter.voter_id,
        "voterDirectoryId": uuid_to_text(voter.directory_id),
        "endpoints": [{"name": name, "host": host, "port": port} for name, host, port in voter.endpoints],
        "kRaftVersionFeature": supported,
    }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "replace")


def _flag(value: bool) -> str:
    return "true" if value else "false"
