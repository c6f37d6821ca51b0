"""Codec: building record batches of format v2, byte for byte as Kafka's MemoryRecordsBuilder does.

Layouts are drawn in `batch.py`. A table (`_varints`) has the varints of values up to 4095, which nearly all
offset deltas, lengths and timestamp deltas are. The table grows as it is used, because an idle broker needs none of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    TimestampType,
)
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.records.crc import crc32c

Headers = Sequence[tuple[str, bytes | None]]

RECORD_OVERHEAD_MAX: Final = 21
"""The largest number of bytes of a record besides key, value and headers (DefaultRecord.MAX_RECORD_OVERHEAD)."""

_CRC: Final = struct.Struct(">I")
_INT32_MAX: Final = (1 << 31) - 1


def _encode_unsigned(raw: int) -> bytes:
    if raw < 1 << 14:
        return bytes((raw & 0x7F | 0x80, raw >> 7)) if raw > 0x7F else bytes((raw,))
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_TABLE_SIZE_MAX: Final = 1 << 13
_varints = tuple(_encode_unsigned(raw) for raw in range(128))


def _encode_missing(raw: int) -> bytes:
    """Encode a value that the table lacks, and let the table grow up to twice the value."""
    global _varints
    if raw < _TABLE_SIZE_MAX:  # a new tuple, because other threads may be reading the table
        _varints = tuple(_encode_unsigned(other) for other in range(min(2 * raw, _TABLE_SIZE_MAX)))
    return _encode_unsigned(raw)


_NULL: Final = _encode_unsigned(1)  # zigzag of -1
_EMPTY: Final = _encode_unsigned(0)


def varint(value: int) -> bytes:
    """The zigzag varint of an integer of up to 64 bits."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    table = _varints
    return table[raw] if raw < len(table) else _encode_missing(raw)


class SimpleRecord(NamedTuple):
    """A record without an offset."""

    key: Buffer | None
    value: Buffer | None
    timestamp: int = NO_TIMESTAMP
    headers: Headers = ()


def encode_record(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
) -> bytes:
    """Encode one record of a batch, with its length prefix."""
    table = _varints
    known = len(table)
    raw = timestamp_delta << 1 if timestamp_delta >= 0 else (-timestamp_delta << 1) - 1
    timestamp = table[raw] if raw < known else _encode_missing(raw)
    raw = offset_delta << 1
    offset = table[raw] if raw < known else _encode_missing(raw)
    if key is None:
        key_length, key = _NULL, b""
    else:
        raw = len(key) << 1
        key_length = table[raw] if raw < known else _encode_missing(raw)
    if value is None:
        value_length, value = _NULL, b""
    else:
        raw = len(value) << 1
        value_length = table[raw] if raw < known else _encode_missing(raw)
    tail = _encode_headers(headers) if headers else _EMPTY
    body = b"".join((b"\x00", timestamp, offset, key_length, key, value_length, value, tail))
    raw = len(body) << 1
    return (table[raw] if raw < known else _encode_missing(raw)) + body


def _encode_headers(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (varint(len(key)), key)
        parts += (_NULL,) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def build_batch(
    records: Iterable[SimpleRecord],
    *,
    base_offset: int = 0,
    codec: CompressionType = CompressionType.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """Encode one batch with consecutive offsets from `base_offset`. Raises ValueError without records."""
    encode = encode_record
    encoded: list[bytes] = []
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for delta, (key, value, timestamp, headers) in enumerate(records):
        if not delta:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        encoded.append(encode(delta, timestamp - base_timestamp, key, value, headers))
    if not encoded:
        raise ValueError("a batch needs at least one record")
    by_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    attributes = (
        codec
        | (LOG_APPEND_TIME_FLAG if by_append_time else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(encoded) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=log_append_time_ms if by_append_time else max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(encoded),
    )
    return seal(header, _payload(encoded, codec, level))


def seal(header: BatchHeader, payload: Buffer) -> bytes:
    """The batch of `header` and `payload` (the records as stored), with its length and CRC."""
    size = HEADER_SIZE + len(payload)
    if size > _INT32_MAX:
        raise ValueError(f"a batch of {size} bytes does not fit 32 bits: append fewer records")
    head = bytearray(header._replace(batch_length=size - LOG_OVERHEAD, crc=0).pack())
    crc = crc32c(payload, crc32c(memoryview(head)[CRC_START:]))
    _CRC.pack_into(head, CRC_START - 4, crc)
    return b"".join((head, payload))


def _join(header: BatchHeader, parts: Sequence[Buffer]) -> bytearray:
    """The batch of `header` and the parts of its payload, copied once, with its length and CRC."""
    batch = bytearray().join((bytes(HEADER_SIZE), *parts))
    size = len(batch)
    if size > _INT32_MAX:
        raise ValueError(f"a batch of {size} bytes does not fit 32 bits: append fewer records")
    batch[:HEADER_SIZE] = header._replace(batch_length=size - LOG_OVERHEAD, crc=0).pack()
    _CRC.pack_into(batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def _payload(encoded: list[bytes], codec: CompressionType, level: int | None) -> bytes:
    joined = b"".join(encoded)
    return joined if codec is CompressionType.NONE else compress(codec, joined, level)


def rebuild_batch(
    header: BatchHeader,
    records: Iterable[Record],
    *,
    codec: CompressionType | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch of `header` with other records: the offsets, the producer fields and the offset range do not change.

    Compaction and recompression in the broker write such batches. A batch without records keeps the producer's last
    sequence number (`MemoryRecords.filterTo` with RETAIN_EMPTY). With `delete_horizon_ms` the base timestamp field has
    the horizon, and the timestamp deltas of the records refer to it (KIP-534).
    """
    target = header.codec if codec is None else codec
    horizon = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    by_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_timestamp = horizon
    max_timestamp = NO_TIMESTAMP
    encoded: list[bytes] = []
    for offset, timestamp, key, value, headers in records:
        if base_timestamp is None:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        encoded.append(encode_record(offset - header.base_offset, timestamp - base_timestamp, key, value, headers))
    rebuilt = header._replace(
        attributes=attributes_with(header, target if encoded else CompressionType.NONE, horizon is not None),
        base_timestamp=header.base_timestamp if base_timestamp is None else base_timestamp,
        max_timestamp=header.max_timestamp if by_append_time else max_timestamp,
        record_count=len(encoded),
    )
    return seal(rebuilt, _payload(encoded, target, level) if encoded else b"")


def attributes_with(header: BatchHeader, codec: CompressionType, has_delete_horizon: bool) -> int:
    """The attributes of `header` under another codec, with the delete horizon's flag set if there is one."""
    return header.attributes & ~CODEC_MASK | codec | (DELETE_HORIZON_FLAG if has_delete_horizon else 0)


class BatchBuilder:
    """Collects a producer's records for one partition until the batch is full.

    `batch_bytes_max` limits the estimated size of the batch: the records' bytes times `compression_ratio`, the ratio of
    earlier batches of the topic (CompressionRatioEstimator). The first record always fits.

    The parts of records are kept and joined once, by `build`, so that keys and values of type `bytes` are copied only
    once.
    """

    __slots__ = (
        "_attributes_and_time",
        "_base_timestamp",
        "_codec",
        "_level",
        "_limit",
        "_max_timestamp",
        "_parts",
        "_ratio",
        "_timestamp",
        "bytes",
        "is_full",
        "record_count",
    )

    def __init__(
        self,
        batch_bytes_max: int,
        *,
        codec: CompressionType = CompressionType.NONE,
        level: int | None = None,
        compression_ratio: float = 1.0,
    ) -> None:
        self._codec = codec
        self._level = level
        self._ratio = compression_ratio if codec is not CompressionType.NONE else 1.0
        self._limit = int((batch_bytes_max - HEADER_SIZE) / self._ratio)
        self._parts: list[bytes] = []
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP
        self._timestamp: int | None = None
        """The timestamp of the last record, and its encoded delta: most records have the same timestamp as the previous
        one."""
        self._attributes_and_time = b""
        self.record_count = 0
        self.bytes = 0
        """The bytes of the records so far, uncompressed and without the batch header."""
        self.is_full = False
        """Whether no further record fits, so that the batch can be sent."""

    def try_append(self, key: Buffer | None, value: Buffer | None, timestamp: int, headers: Headers = ()) -> int | None:
        """Add a record and return its offset delta; return None if the batch is full.

        The record is encoded inline and not by `encode_record`: a producer does this for every record, and the calls
        and the additional copy would cost more than everything else.
        """
        table = _varints
        known = len(table)
        count = self.record_count
        if timestamp != self._timestamp:
            if not count:
                self._base_timestamp = timestamp
            self._timestamp = timestamp
            self._attributes_and_time = b"\x00" + varint(timestamp - self._base_timestamp)
        time = self._attributes_and_time
        raw = count << 1
        offset = table[raw] if raw < known else _encode_missing(raw)
        if key is None:
            key_length, key = _NULL, b""
        else:
            if type(key) is not bytes:
                key = bytes(key)
            raw = len(key) << 1
            key_length = table[raw] if raw < known else _encode_missing(raw)
        if value is None:
            value_length, value = _NULL, b""
        else:
            if type(value) is not bytes:
                value = bytes(value)
            raw = len(value) << 1
            value_length = table[raw] if raw < known else _encode_missing(raw)
        tail = _encode_headers(headers) if headers else _EMPTY
        size = len(time) + len(offset) + len(key_length) + len(key) + len(value_length) + len(value) + len(tail)
        raw = size << 1
        length = table[raw] if raw < known else _encode_missing(raw)
        total = self.bytes + len(length) + size
        if count and total > self._limit:
            return None
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._parts += (length, time, offset, key_length, key, value_length, value, tail)
        self.bytes = total
        self.is_full = total >= self._limit
        self.record_count = count + 1
        return count

    @property
    def size(self) -> int:
        """The estimated size of the batch in bytes, header included."""
        return HEADER_SIZE + int(self.bytes * self._ratio)

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        """Encode the batch. May be called again with another sequence, after a reset of the producer id."""
        if not self.record_count:
            raise ValueError("a batch needs at least one record")
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=self._codec | (TRANSACTIONAL_FLAG if transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        return _join(
            header,
            self._parts if self._codec is CompressionType.NONE else [_payload(self._parts, self._codec, self._level)],
        )
