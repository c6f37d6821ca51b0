"""Codec: checks whether bytes are a chain of well-formed records, without building the records.

There are two depths of checks, because the broker checks all produced records and the deeper check takes longer:

- `check_chain` follows the length prefixes from record to record: at most 0.1 us per record.
- `scan_records` opens every record and checks every length in it: about 0.5 us per record.

The input is the decompressed records. Both functions raise CorruptBatchError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import (
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    read_varint,
    read_varlong,
    records_payload,
)
from barnabas.protocol.records.compression import DECOMPRESSED_RECORD_BYTES_MAX
from barnabas.protocol.records.errors import CorruptBatchError

LONG_MAX: Final = (1 << 63) - 1


class RecordFacts(Struct, frozen=True):
    """The facts about one record that validation needs."""

    timestamp: int
    has_key: bool


def check_chain(data: Buffer, record_count: int) -> int:
    """Follow `record_count` length prefixes, which must end exactly at the end of `data`. Returns the start of the last
    record.

    Raises CorruptBatchError when a length is negative or the chain ends elsewhere.

    Consecutive records often have one size. A whole run of such records is checked at once (`_run_length`). After a few
    records without a run, the remaining ones are followed one by one; only if there are many is a memoryview then
    copied to bytes, which are faster to index.
    """
    at = same = 0
    left = record_count - 1
    patience = _PATIENCE
    try:
        while left > 0 and patience:
            before, at = at, _skip_record(data, at)
            left -= 1
            patience -= 1
            size = at - before
            if size == same:
                run = _run_length(data, before, size, left)
                at += run * size
                left -= run
                if run > _PATIENCE:
                    patience = _PATIENCE
            same = size
        if left:
            at = _follow(bytes(data) if left > _PATIENCE else data, at, left)
        start = at
        if record_count > 0:
            at = _skip_record(data, at)
    except IndexError:
        at = start = len(data) + 1
    if at != len(data):
        where = "before" if at < len(data) else "after"
        raise CorruptBatchError(f"the lengths of {record_count} records end {where} the end of the batch")
    return start


_PATIENCE: Final = 6
"""The number of records that can be followed one by one in about the time of a search for a run."""


def _run_length(data: Buffer, at: int, size: int, most: int) -> int:
    """The number of records after the one at `at`, at most `most`, with the same length prefix and so the same size.

    In a run, every size-th byte from `at` on is the first byte of a length prefix, and likewise for its other bytes.
    The run continues as long as these bytes are equal to those of the first record.
    """
    stop = at + (most + 1) * size
    run = most
    for place in range(at, at + 5):
        column = bytes(data[place:stop:size])
        run = min(run, len(column) - len(column.lstrip(column[:1])) - 1)
        if column[0] < 0x80:  # the last byte of the length
            break
    return run


def _follow(data: Buffer, at: int, count: int) -> int:
    """The start of the record that is `count` records after the one at `at`, following one by one."""
    # The loop repeats the common case of `_skip_record`, because a call for each record would double its time.
    signs = 0
    for _ in range(count):
        raw = data[at]
        if raw < 0x80:
            at += 1 + (raw >> 1)
        else:
            second = data[at + 1]
            if second < 0x80:
                at += (raw >> 1) + (second << 6) - 62  # that is 2 + ((raw & 0x7F | second << 7) >> 1)
            else:
                at = _skip_record(data, at)
        signs |= raw
    if signs & 1:
        raise CorruptBatchError("a record has a negative length")
    return at


def _skip_record(data: Buffer, at: int) -> int:
    """The start of the record after the one at `at`, by its length prefix."""
    raw = data[at]
    if not raw & 1:
        if raw < 0x80:
            return at + 1 + (raw >> 1)
        second = data[at + 1]
        if second < 0x80:
            return at + (raw >> 1) + (second << 6) - 62  # that is 2 + ((raw & 0x7F | second << 7) >> 1)
    length, at = read_varint(data, at)
    if length < 0:
        raise CorruptBatchError(f"a record has length {length}")
    return at + length


def open_record(data: Buffer, at: int, index: int, base_timestamp: int) -> tuple[RecordFacts, int]:
    """Check every length of the record at `at`, which must have the offset delta `index`. Returns the facts and the
    start of the next record.

    The common shape is decoded here, without a call for each varint: varints of one and two bytes, no headers. All
    other records are decoded or rejected by `_open_any_record`. `scan_records` repeats this code in its loop, with
    longer deltas, because a call for each record would cost more than the decoding.
    """
    start = at
    try:
        length = data[at]
        at += 2  # the length's first byte, the attributes
        if length >= 0x80:
            length = length & 0x7F | data[at - 1] << 7
            at += 1
        end = at - 1 + (length >> 1)
        timestamp = data[at]
        at += 1
        if timestamp >= 0x80:
            timestamp = timestamp & 0x7F | data[at] << 7
            at += 1
        offset = data[at]
        at += 1
        if offset >= 0x80:
            offset = offset & 0x7F | data[at] << 7
            at += 1
        key = data[at]
        at += 1
        if key >= 0x80:
            key = key & 0x7F | data[at] << 7
            at += 1
        at += key >> 1  # 0 for null, which is 1 in zigzag form
        value = data[at]
        at += 1
        if value >= 0x80:
            value = value & 0x7F | data[at] << 7
            at += 1
        at += value >> 1
        # bit 0 of a length: negative; bit 14: a third byte follows
        if (
            at + 1 == end <= len(data)
            and not data[at]
            and offset == index << 1
            and not (length | timestamp | offset | key | value) & ~0x3FFF
            and (not (length | key | value) & 1 or _only_nulls(length, key, value))
        ):
            return RecordFacts(base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1)), not key & 1), end
    except IndexError:
        pass
    return _open_any_record(data, start, index, base_timestamp)


def _open_any_record(data: Buffer, at: int, index: int, base_timestamp: int) -> tuple[RecordFacts, int]:
    """As `open_record`, for records of any shape."""
    try:
        length, at = read_varint(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise CorruptBatchError(f"record {index} has length {length}, {len(data) - at} bytes are left")
        timestamp_delta, at = read_varlong(data, at + 1)
        offset_delta, at = read_varint(data, at)
        if offset_delta != index:
            raise CorruptBatchError(f"record {index} has offset delta {offset_delta}: deltas count up from 0")
        key_length, at = read_varint(data, at)
        at = _skip(at, key_length, end, index)
        value_length, at = read_varint(data, at)
        at = _skip(at, value_length, end, index)
        headers, at = read_varint(data, at)
        if not 0 <= headers <= end - at:
            raise CorruptBatchError(f"record {index} declares {headers} headers in {end - at} bytes")
        for _ in range(headers):
            name_length, at = read_varint(data, at)
            if name_length < 0:
                raise CorruptBatchError(f"record {index} has a header with a null key")
            at = _skip(at, name_length, end, index)
            header_value_length, at = read_varint(data, at)
            at = _skip(at, header_value_length, end, index)
    except IndexError:
        raise CorruptBatchError(f"the batch ends inside record {index}") from None
    if at != end:
        raise CorruptBatchError(f"record {index} is {length} bytes long, its fields end {end - at} bytes before that")
    return RecordFacts(base_timestamp + timestamp_delta, key_length >= 0), end


def _skip(at: int, length: int, end: int, index: int) -> int:
    if length < -1 or length > end - at:
        raise CorruptBatchError(f"a field of record {index} declares {length} bytes, {end - at} are left")
    return at + length if length > 0 else at


def scan_records(data: bytes, record_count: int, base_timestamp: int) -> Scan:
    """Check every record. Raises CorruptBatchError unless there are exactly `record_count`, numbered from 0.

    This loop decodes the common shape: lengths of one and two bytes, deltas of up to four bytes (a batch of a million
    records, timestamps of a day), no headers. `_open_any_record` decodes or rejects all other records.
    """
    at = keyless = 0
    size = len(data)
    oldest, newest = LONG_MAX, -LONG_MAX - 1
    for index in range(record_count):
        start = at
        try:
            length = data[at]
            at += 2  # the length's first byte, the attributes
            if length >= 0x80:
                length = length & 0x7F | data[at - 1] << 7
                at += 1
            end = at - 1 + (length >> 1)
            timestamp = data[at]
            at += 1
            if timestamp >= 0x80:
                timestamp = timestamp & 0x7F | data[at] << 7
                at += 1
                if timestamp >= 0x4000:
                    timestamp = timestamp & 0x3FFF | data[at] << 14
                    at += 1
                    if timestamp >= 0x200000:
                        timestamp = timestamp & 0x1FFFFF | data[at] << 21
                        at += 1
            offset = data[at]
            if offset >= 0x80:
                at += 1
                offset = offset & 0x7F | data[at] << 7
                if offset >= 0x4000:
                    at += 1
                    offset = offset & 0x3FFF | data[at] << 14
                    if offset >= 0x200000:
                        at += 1
                        offset = offset & 0x1FFFFF | data[at] << 21
            key = data[at + 1]
            if key & 0x81:  # null, or longer than 63 bytes
                at += 2
                if key >= 0x80:
                    key = key & 0x7F | data[at] << 7
                    at += 1 + (key >> 1)
            else:
                at += 2 + (key >> 1)
            value = data[at]
            if value >= 0x80:
                value = value & 0x7F | data[at + 1] << 7
                at += 2 + (value >> 1)
            else:
                at += 1 + (value >> 1)
            # bit 0 of a length: negative; bit 14 and up: a third byte follows. Bit 28 of a delta: a fifth byte follows.
            if (
                at + 1 == end <= size
                and not data[at]
                and offset == index << 1
                and not (length | value | key) & ~0x3FFF
                and not (offset | timestamp) & ~0xFFFFFFF
                and (not (length | key | value) & 1 or _only_nulls(length, key, value))
            ):
                keyless += key & 1
                delta = (timestamp >> 1) ^ -(timestamp & 1)
                if delta > newest:
                    newest = delta
                if delta < oldest:
                    oldest = delta
                at = end
                continue
        except IndexError:
            pass
        facts, at = _open_any_record(data, start, index, 0)
        newest, oldest = max(newest, facts.timestamp), min(oldest, facts.timestamp)
        keyless += not facts.has_key
    if at != size:
        raise CorruptBatchError(f"{size - at} bytes remain after {record_count} records")
    return Scan(base_timestamp + oldest, base_timestamp + newest, keyless)


def _only_nulls(length: int, key: int, value: int) -> bool:
    """Whether none of these lengths, in zigzag form, is negative, except a key or value length of -1, which means null.

    A zigzag number is odd if it encodes a negative number; 1 encodes -1.
    """
    return not length & 1 and (key == 1 or not key & 1) and (value == 1 or not value & 1)


def find_timestamp(
    buf: Buffer,
    header: BatchHeader,
    timestamp: int,
    least_offset: int,
    max_decompressed_message_bytes: int = DECOMPRESSED_RECORD_BYTES_MAX,
) -> tuple[int, int] | None:
    """The timestamp and offset of the first record of the batch at the start of `buf` that has at least this timestamp
    and this offset; None if there is none.

    Raises CorruptBatchError, and RecordSizeError if a compressed record has more bytes than
    `max_decompressed_message_bytes`.

    Only the deltas of a record are decoded: about 0.4 us per record.
    """
    data = bytes(records_payload(buf, 0, header, max_decompressed_message_bytes=max_decompressed_message_bytes))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    base, base_offset = header.base_timestamp, header.base_offset
    wanted = timestamp - base if append_time is None else -LONG_MAX
    if append_time is not None and append_time < timestamp:
        return None
    at = 0
    try:
        for _ in range(header.record_count):
            length = data[at]
            if length < 0x80:
                at += 1
                length >>= 1
            else:
                length, at = read_varint(data, at)
            if length < 0:
                raise CorruptBatchError(f"a record of the batch at {base_offset} has length {length}")
            delta = data[at + 1]
            after = at + 2
            if delta >= 0x80:
                delta = delta & 0x7F | data[after] << 7
                after += 1
                if delta >= 0x4000:
                    delta = delta & 0x3FFF | data[after] << 14
                    after += 1
            if delta < 0x200000:
                delta = (delta >> 1) ^ -(delta & 1)
            else:
                delta, after = read_varlong(data, at + 1)
            if delta >= wanted:
                offset = base_offset + read_varint(data, after)[0]
                if offset >= least_offset:
                    return (base + delta if append_time is None else append_time), offset
            at += length
    except IndexError:
        raise CorruptBatchError(f"the batch at {base_offset} ends inside a record") from None
    return None


class Scan(Struct, frozen=True):
    """The result of a full scan."""

    min_timestamp: int
    max_timestamp: int
    keyless: int
    """The number of records with a null key."""


def iter_facts(data: bytes, record_count: int, base_timestamp: int) -> Iterator[RecordFacts]:
    """Yield the facts of every record, to name the invalid ones. Raises CorruptBatchError."""
    at = 0
    for index in range(record_count):
        facts, at = open_record(data, at, index, base_timestamp)
        yield facts
