"""Shell: reads a partition's files without a broker, and says what is in them, line by line, as Kafka's
DumpLogSegments does (same words, same order, so that scripts which parse its output keep working)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from barnabas.core.errors import KafkaError
from barnabas.records.batch import BatchHeader, Record, check_crc, iter_batches, iter_records
from barnabas.records.compression import Codec

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What to show. `decode` turns a record of one of the cluster's own topics into text (see `decoders`)."""

    records: bool = False
    payload: bool = False
    max_bytes: int = 1 << 62
    decode: Callable[[Record], str] | None = None


def dump_file(path: Path, options: DumpOptions) -> Iterator[str]:
    """The lines for one file, by its suffix. Raises ValueError for a file that is none of a log's."""
    yield f"Dumping {path}"
    base = _base_offset(path)
    match path.suffix:
        case ".log" | ".checkpoint":
            yield f"Log starting offset: {base}"
            yield from dump_log(path, options)
        case ".index":
            for relative, position in _entries(path, _OFFSET_ENTRY):
                yield f"offset: {base + relative} position: {position}"
        case ".timeindex":
            for timestamp, relative in _entries(path, _TIME_ENTRY):
                yield f"timestamp: {timestamp} offset: {base + relative}"
        case ".txnindex":
            for version, producer, first, last, stable in _TXN_ENTRY.iter_unpack(_whole(path, _TXN_ENTRY.size)):
                yield (
                    f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} "
                    f"lastStableOffset: {stable}"
                )
        case _:
            raise ValueError(f"{path}: not a .log, .index, .timeindex, .txnindex or .checkpoint file")


def _base_offset(path: Path) -> int:
    digits = path.name.split(".")[0].split("-")[0]
    if not digits.isdigit():
        raise ValueError(f"{path}: the name of a log's file begins with its first offset")
    return int(digits)


def _whole(path: Path, size: int) -> bytes:
    data = path.read_bytes()
    return data[: len(data) - len(data) % size]


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """Index entries up to the preallocated, zero-filled rest of a live index."""
    previous: tuple[int, int] = (-1, -1)
    for index, (first, second) in enumerate(entry.iter_unpack(_whole(path, entry.size))):
        if index and (first, second) == (0, 0) and previous > (0, 0):
            return
        previous = (first, second)
        yield first, second


def dump_log(path: Path, options: DumpOptions) -> Iterator[str]:
    """A line a batch, and below it a line a record when `options.records`."""
    data = memoryview(path.read_bytes())[: options.max_bytes]
    end = 0
    try:
        for position, header in iter_batches(data):
            yield batch_line(data, position, header)
            if options.records:
                for record in iter_records(data, position, header):
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
        f"size: {header.size} magic: {header.magic} compresscodec: {Codec(header.codec).name.lower()} "
        f"crc: {header.crc & 0xFFFFFFFF} isvalid: {valid}"
    )


def record_line(header: BatchHeader, record: Record, options: DumpOptions) -> str:
    key, value = record.key, record.value
    sequence = header.base_sequence + record.offset - header.base_offset if header.has_producer_id else -1
    line = (
        f"| offset: {record.offset} {header.timestamp_type.config_name}: {record.timestamp} "
        f"keySize: {-1 if key is None else len(key)} valueSize: {-1 if value is None else len(value)} "
        f"sequence: {sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )
    if header.is_control and key is not None:
        kinds = (
            "ABORT",
            "COMMIT",
            "LEADER_CHANGE",
            "SNAPSHOT_HEADER",
            "SNAPSHOT_FOOTER",
            "KRAFT_VERSION",
            "KRAFT_VOTERS",
        )
        kind = struct.unpack_from(">h", key, 2)[0]
        return line + f" controlType: {kinds[kind] if 0 <= kind < len(kinds) else kind}"
    if options.decode:
        return line + options.decode(record)
    if options.payload:
        line += "" if key is None else f" key: {_text(key)}"
        line += "" if value is None else f" payload: {_text(value)}"
    return line


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "replace")


def _flag(value: bool) -> str:
    return "true" if value else "false"
