"""Codec: reading record batches of format v2 through a view, without copying them.

A batch on the wire and on disk (big-endian; Kafka's DefaultRecordBatch):

    offset size field                  offset size field
      0     8   baseOffset               27    8   baseTimestamp  (delete horizon if bit 6)
      8     4   batchLength (= size-12)  35    8   maxTimestamp
     12     4   partitionLeaderEpoch     43    8   producerId
     16     1   magic (2)                51    2   producerEpoch
     17     4   crc (CRC-32C of 21..end) 53    4   baseSequence
     21     2   attributes               57    4   recordCount
     23     4   lastOffsetDelta          61    .   records, compressed as a whole if bits 0-2 say so

    attributes: 0-2 codec | 3 timestamp type | 4 transactional | 5 control | 6 delete horizon set (KIP-534)

Base offset, length and leader epoch lie outside the CRC, so that a leader can assign them in place.

A record (Kafka's DefaultRecord; varints are zigzag, lengths of -1 mean null):

    length varint | attributes int8 | timestampDelta varlong | offsetDelta varint
    keyLength varint | key | valueLength varint | value
    headerCount varint | { keyLength varint | key utf-8 | valueLength varint | value } ...
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSED_RECORD_BYTES_MAX,
    CompressionType,
    decompress,
)
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.records.errors import CorruptBatchError, RecordSizeError

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""The number of bytes before those that batchLength counts."""
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_TO_MAGIC: Final = struct.Struct(">iib")
CRC_START: Final = 21
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
_INT32: Final = 1 << 32
_new_tuple: Final = tuple.__new__  # `BatchHeader._make` is a Python function around this
_CODECS: Final = tuple(CompressionType)  # indexed by codec id; a look-up is faster than CompressionType(...)


class TimestampType(IntEnum):
    """Bit 3 of the attributes; the values of `message.timestamp.type`."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def config_name(self) -> str:
        return "CreateTime" if self is TimestampType.CREATE_TIME else "LogAppendTime"


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31-1 to 0 (DefaultRecordBatch.incrementSequence)."""
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> CompressionType:
        """The codec of the records. Raises CorruptBatchError for an unknown id."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the tombstones of this batch may be removed, if compaction has set it (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    def pack(self) -> bytes:
        """Encode the header as 61 bytes."""
        return _HEADER.pack(*self)


class Record(NamedTuple):
    """One decoded record. Key, value and header values may be null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def codec_of(attributes: int) -> CompressionType:
    """The codec in a batch's attributes. Raises CorruptBatchError for ids 5 to 7."""
    try:
        return _CODECS[attributes & CODEC_MASK]
    except IndexError:
        raise CorruptBatchError(
            f"compression codec {attributes & CODEC_MASK} does not exist; the batch's attributes are damaged"
        ) from None


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`. Raises CorruptBatchError if the bytes are too few, have a magic below 2, or an invalid
    length.

    Only the magic and the minimal length are checked, on which every reader relies. The buffer may end before the batch
    does, for example when only the header was read from disk.
    """
    if pos < 0 or len(buf) - pos < HEADER_SIZE:
        raise CorruptBatchError(f"a batch header needs {HEADER_SIZE} bytes, {max(len(buf) - pos, 0)} are left at {pos}")
    header: BatchHeader = _new_tuple(BatchHeader, _HEADER.unpack_from(buf, pos))
    if header[3] != MAGIC:
        raise CorruptBatchError(f"magic {header[3]} at byte {pos}: only record format v2 is supported (KIP-724)")
    if header[1] < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatchError(f"batch length {header[1]} at byte {pos} is smaller than a batch header")
    return header


def moved(header: BatchHeader, base_offset: int, leader_epoch: int) -> BatchHeader:
    """The header with another base offset and leader epoch, the two fields that a leader assigns."""
    new: BatchHeader = _new_tuple(BatchHeader, (base_offset, header[1], leader_epoch, *header[3:]))
    return new


def iter_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield each whole batch from `pos` on, as (position, header). CRCs are not checked.

    A partial batch at the end is ignored, because a fetch response may have one.
    Raises CorruptBatchError for bytes that are not a batch.
    """
    end = len(buf)
    while end - pos >= LOG_OVERHEAD + _LENGTH_TO_MAGIC.size - 4:
        length, _, magic = _LENGTH_TO_MAGIC.unpack_from(buf, pos + 8)
        if magic != MAGIC:
            raise CorruptBatchError(f"magic {magic} at byte {pos}: only record format v2 is supported (KIP-724)")
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptBatchError(f"batch length {length} at byte {pos} is smaller than a batch header")
        if end - pos < LOG_OVERHEAD + length:
            return
        yield pos, _new_tuple(BatchHeader, _HEADER.unpack_from(buf, pos))
        pos += LOG_OVERHEAD + length


def last_batch(buf: Buffer, pos: int = 0) -> BatchHeader | None:
    """The header of the last whole batch; None without one. Faster than `iter_batches`.

    Raises CorruptBatchError for bytes that are not a batch.
    """
    end = len(buf)
    last = -1
    while end - pos >= LOG_OVERHEAD + _LENGTH_TO_MAGIC.size - 4:
        length, _, magic = _LENGTH_TO_MAGIC.unpack_from(buf, pos + 8)
        if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
            next(iter_batches(buf, pos))  # raises the error
        if end - pos < LOG_OVERHEAD + length:
            break
        last = pos
        pos += LOG_OVERHEAD + length
    return None if last < 0 else _new_tuple(BatchHeader, _HEADER.unpack_from(buf, last))


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Compare the CRC-32C of the batch at `pos` with its header. Raises CorruptBatchError if they differ."""
    end = pos + header.batch_length + LOG_OVERHEAD
    if len(buf) < end:
        raise CorruptBatchError(f"batch at byte {pos} needs {header.size} bytes, {len(buf) - pos} are left")
    computed = crc32c(memoryview(buf)[pos + CRC_START : end])
    if computed != header.crc:
        raise CorruptBatchError(
            f"CRC of the batch at byte {pos} (base offset {header.base_offset}) is {computed:#010x}, "
            f"its header says {header.crc:#010x}: the bytes were damaged on the way or on disk"
        )


def records_payload(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
    max_decompressed_message_bytes: int = DECOMPRESSED_RECORD_BYTES_MAX,
) -> Buffer:
    """The bytes of the records of the batch at `pos`, decompressed if necessary. For an uncompressed batch the
    result is a view of `buf`.

    Raises CorruptBatchError, DecompressionLimitError beyond `limit_bytes`, and RecordSizeError if a compressed batch
    has a record of more than `max_decompressed_message_bytes` bytes.
    """
    end = pos + header.size
    if len(buf) < end:
        raise CorruptBatchError(f"batch at byte {pos} needs {header.size} bytes, {len(buf) - pos} are left")
    view = memoryview(buf)[pos + HEADER_SIZE : end]
    codec = codec_of(header.attributes)
    if codec is CompressionType.NONE:
        return view
    payload = decompress(codec, view, limit_bytes)
    if len(payload) > max_decompressed_message_bytes:
        _check_record_sizes(payload, header.record_count, max_decompressed_message_bytes)
    return payload


def _check_record_sizes(payload: bytes, record_count: int, max_decompressed_message_bytes: int) -> None:
    """Raises RecordSizeError. Nothing else is checked: a length that leaves the payload ends the check."""
    at = 0
    for _ in range(record_count):
        if at >= len(payload):
            return
        try:
            length, at = read_varint(payload, at)
        except IndexError:
            return
        if length > max_decompressed_message_bytes:
            limit = f"max.decompressed.message.bytes={max_decompressed_message_bytes}"
            raise RecordSizeError(f"a compressed record inflates to {length} bytes, more than {limit}")
        if length < 0:
            return
        at += length


def iter_records(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    *,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
    max_decompressed_message_bytes: int = DECOMPRESSED_RECORD_BYTES_MAX,
) -> Iterator[Record]:
    """Yield the records of the batch at `pos`, with all bounds checked.

    Raises CorruptBatchError when a length exceeds its record, offsets do not increase, the count is wrong or bytes
    remain; DecompressionLimitError when the payload inflates beyond `limit_bytes`, RecordSizeError when a compressed
    record has more than `max_decompressed_message_bytes`. Under LogAppendTime every record has the batch's max
    timestamp.
    """
    data = bytes(records_payload(buf, pos, header, limit_bytes, max_decompressed_message_bytes))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    base_offset, base_timestamp, last_offset_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    size = len(data)
    at = 0
    last_delta = -1
    new = tuple.__new__  # the same as Record(...), without a call in between
    try:
        for _ in range(header.record_count):
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > size:
                raise CorruptBatchError(f"record length {length} leaves the batch (base offset {base_offset})")
            # five varints follow; nearly all have one byte and are decoded inline
            timestamp_delta = data[at + 1]
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
                at += 2
            else:
                timestamp_delta, at = read_varlong(data, at + 1)
            delta = data[at]
            if delta < 0x80 and not delta & 1:
                delta >>= 1
                at += 1
            else:
                delta, at = read_varint(data, at)
            if not last_delta < delta <= last_offset_delta:
                raise CorruptBatchError(f"offset delta {delta} after {last_delta} in the batch at {base_offset}")
            last_delta = delta
            raw = data[at]
            if raw < 0x80 and not raw & 1:
                at += 1
                stop = at + (raw >> 1)
                if stop > end:
                    raise CorruptBatchError(f"a key of {raw >> 1} bytes leaves its record")
                key: bytes | None = data[at:stop]
                at = stop
            else:
                key, at = _read_bytes(data, at, end)
            value, at = _read_bytes(data, at, end)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if at < end and not data[at]:
                at += 1
            else:
                headers, at = _read_headers(data, at, end)
            if at != end:
                raise CorruptBatchError(f"{end - at} bytes remain in a record of the batch at {base_offset}")
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            yield new(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise CorruptBatchError(f"the batch at {base_offset} ends inside a record") from None
    if header.record_count < 0 or at != size:
        raise CorruptBatchError(
            f"batch at {base_offset} declares {header.record_count} records; {size - at} bytes remain after them"
        )


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """Decode a zigzag int32. Returns the value and the position after it.

    Raises IndexError if `data` ends within the varint, CorruptBatchError if the varint is longer than five bytes.
    """
    raw = data[at]
    at += 1
    if raw & 0x80:
        second = data[at]
        if second < 0x80:
            raw = raw & 0x7F | second << 7
            return (raw >> 1) ^ -(raw & 1), at + 1
        raw &= 0x7F
        for shift in (7, 14, 21, 28):
            byte = data[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise CorruptBatchError("a varint is longer than five bytes")
        raw &= _INT32 - 1
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(data: Buffer, at: int) -> tuple[int, int]:
    """Decode a zigzag int64. Returns the value and the position after it.

    Raises IndexError if `data` ends within the varint, CorruptBatchError if the varint is longer than ten bytes.
    """
    raw = data[at]
    at += 1
    if raw & 0x80:
        raw &= 0x7F
        for shift in (7, 14, 21, 28, 35, 42, 49, 56, 63):
            byte = data[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise CorruptBatchError("a varlong is longer than ten bytes")
        raw &= (1 << 64) - 1
    return (raw >> 1) ^ -(raw & 1), at


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Decode a nullable byte string. Returns the string and the position after it.

    Raises CorruptBatchError if the string ends after `end`.
    """
    raw = data[at]
    if raw < 0x80:
        length = (raw >> 1) ^ -(raw & 1)
        at += 1
    else:
        length, at = read_varint(data, at)
    if length < 0:
        if length != -1:
            raise CorruptBatchError(f"a key or value has length {length}")
        return None, at
    stop = at + length
    if stop > end:
        raise CorruptBatchError(f"a key or value of {length} bytes leaves its record")
    return data[at:stop], stop


def _read_headers(data: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(data, at)
    # a header has at least two bytes, so the count is checked before any memory is allocated
    if count < 0 or count > (end - at) // 2:
        raise CorruptBatchError(f"a record declares {count} headers in {end - at} bytes")
    headers = []
    for _ in range(count):
        key, at = _read_bytes(data, at, end)
        if key is None:
            raise CorruptBatchError("a record header has a null key")
        value, at = _read_bytes(data, at, end)
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), at
