"""Codec: the loops that encode records, compiled by numba. Layouts are drawn in `records/batch.py`."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.records.columnar._jit import (
    BYTES,
    I32,
    I64,
    MUTABLE_BYTES,
    OUT_I32,
    OUT_I64,
    copy_bytes,
    kernel,
    np,
    scalar,
)

_COLUMN = (BYTES, I64, I32)
RECORD_BYTES_MAX = (1 << 31) - 1


@kernel()
def varint_size(value: Any) -> Any:
    """Bytes of the zigzag varint of an int64."""
    raw = (value << 1) ^ (value >> 63)
    size = np.int64(1)
    while raw & ~np.int64(0x7F):
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@kernel()
def put_varint(out: Any, at: Any, value: Any) -> Any:
    """Writes a zigzag varint, returns the position after it. The caller has checked the space."""
    raw = (value << 1) ^ (value >> 63)
    while raw & ~np.int64(0x7F):
        out[at] = np.uint8((raw & 0x7F) | 0x80)
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        at += 1
    out[at] = np.uint8(raw)
    return at + 1


@kernel()
def put_field(out: Any, at: Any, data: Any, start: Any, length: Any) -> Any:
    """Write a nullable byte string with its length. Returns the position after it.

    The caller has checked that it fits into `out`.
    """
    at = put_varint(out, at, length)
    if length > 0:
        copy_bytes(out, at, data, start, length)
        at += length
    return at


@kernel()
def body_size(offset_delta: Any, timestamp_delta: Any, key_len: Any, value_len: Any, headers_len: Any) -> Any:
    """The bytes of a record without its length prefix. A `headers_len` of 0 means no headers: a count of one byte."""
    size = np.int64(1) + varint_size(timestamp_delta) + varint_size(offset_delta)
    size += varint_size(key_len) + max(key_len, np.int64(0))
    size += varint_size(value_len) + max(value_len, np.int64(0))
    return size + max(headers_len, np.int64(1))


@kernel((I32, I32, I32, I64, scalar, scalar, OUT_I64, OUT_I64))
def plan(
    key_len: Any,
    value_len: Any,
    headers_len: Any,
    timestamps: Any,
    records_bytes_max: Any,
    records_max: Any,
    first_rows: Any,
    records_bytes: Any,
) -> Any:
    """Divide rows into batches of a maximal number of record bytes; a larger record gets a batch of its own.

    Returns the number of batches. `first_rows` gets the first row of each, `records_bytes` the bytes of its records.
    """
    batches = np.int64(0)
    start = np.int64(0)
    size = np.int64(0)
    for i in range(timestamps.shape[0]):
        key, value, headers = np.int64(key_len[i]), np.int64(value_len[i]), np.int64(headers_len[i])
        body = body_size(i - start, timestamps[i] - timestamps[start], key, value, headers)
        total = body + varint_size(body)
        if batches == 0 or size + total > records_bytes_max or i - start >= records_max:
            first_rows[batches] = i
            batches += 1
            start = i
            body = body_size(np.int64(0), np.int64(0), key, value, headers)
            total = body + varint_size(body)
            size = np.int64(0)
        size += total
        records_bytes[batches - 1] = size
    return batches


@kernel((I64, I64, I32, I32, I32, OUT_I64))
def sizes(
    offset_deltas: Any, timestamp_deltas: Any, key_len: Any, value_len: Any, headers_len: Any, bodies: Any
) -> Any:
    """Write each record's size without its length prefix to `bodies`.

    Returns the bytes of all records with their prefixes, or -1 if a record is too large.
    """
    total = np.int64(0)
    for i in range(bodies.shape[0]):
        body = body_size(
            offset_deltas[i],
            timestamp_deltas[i],
            np.int64(key_len[i]),
            np.int64(value_len[i]),
            np.int64(headers_len[i]),
        )
        if body > RECORD_BYTES_MAX:
            return np.int64(-1)
        bodies[i] = body
        total += body + varint_size(body)
    return total


@kernel((MUTABLE_BYTES, scalar, scalar, scalar, I64, I64, I64, *_COLUMN, *_COLUMN, *_COLUMN))
def write(
    out: Any,
    at: Any,
    low: Any,
    high: Any,
    bodies: Any,
    offset_deltas: Any,
    timestamp_deltas: Any,
    key_data: Any,
    key_at: Any,
    key_len: Any,
    value_data: Any,
    value_at: Any,
    value_len: Any,
    headers_data: Any,
    headers_at: Any,
    headers_len: Any,
) -> Any:
    """Write the records of rows `low` to `high` (exclusive) to `out`, from position `at` on.

    Returns the position after them, or -1 if a field lies outside of its data or a record does not fit into `out`.
    """
    for i in range(low, high):
        key, value, headers = np.int64(key_len[i]), np.int64(value_len[i]), np.int64(headers_len[i])
        if bodies[i] + 5 > out.shape[0] - at and bodies[i] + varint_size(bodies[i]) > out.shape[0] - at:
            return np.int64(-1)
        if key > 0 and (key_at[i] < 0 or key_at[i] > key_data.shape[0] - key):
            return np.int64(-1)
        if value > 0 and (value_at[i] < 0 or value_at[i] > value_data.shape[0] - value):
            return np.int64(-1)
        if headers > 0 and (headers_at[i] < 0 or headers_at[i] > headers_data.shape[0] - headers):
            return np.int64(-1)
        at = put_varint(out, at, bodies[i])
        out[at] = 0
        at = put_varint(out, at + 1, timestamp_deltas[i])
        at = put_varint(out, at, offset_deltas[i])
        at = put_field(out, at, key_data, key_at[i], key)
        at = put_field(out, at, value_data, value_at[i], value)
        if headers > 0:
            copy_bytes(out, at, headers_data, headers_at[i], headers)
            at += headers
        else:
            out[at] = 0
            at += 1
    return at


@kernel((I64, I32, I32, OUT_I64, OUT_I32))
def header_sizes(list_offsets: Any, key_len: Any, value_len: Any, out_at: Any, out_len: Any) -> Any:
    """Compute the position and the size in bytes of each row's encoded headers; rows without headers have size 0.
    Returns the sum of the sizes, or -1 if a header key is null."""
    total = np.int64(0)
    for i in range(out_at.shape[0]):
        low, high = list_offsets[i], list_offsets[i + 1]
        out_at[i] = total
        size = np.int64(0)
        if high > low:
            size = varint_size(high - low)
            for h in range(low, high):
                key, value = np.int64(key_len[h]), np.int64(value_len[h])
                if key < 0:
                    return np.int64(-1)
                size += varint_size(key) + key + varint_size(value) + max(value, np.int64(0))
        out_len[i] = size
        total += size
    return total


@kernel((I64, BYTES, I64, I32, BYTES, I64, I32, I64, MUTABLE_BYTES))
def write_headers(
    list_offsets: Any,
    key_data: Any,
    key_at: Any,
    key_len: Any,
    value_data: Any,
    value_at: Any,
    value_len: Any,
    out_at: Any,
    out: Any,
) -> Any:
    """Write each row's headers after their count, at the positions of `header_sizes`. Returns -1 for invalid bounds."""
    for i in range(out_at.shape[0]):
        low, high = list_offsets[i], list_offsets[i + 1]
        if high <= low:
            continue
        at = put_varint(out, out_at[i], high - low)
        for h in range(low, high):
            key, value = np.int64(key_len[h]), np.int64(value_len[h])
            if key_at[h] < 0 or key > key_data.shape[0] - key_at[h]:
                return np.int64(-1)
            if value_at[h] < 0 or value > value_data.shape[0] - value_at[h]:
                return np.int64(-1)
            at = put_field(out, at, key_data, key_at[h], key)
            at = put_field(out, at, value_data, value_at[h], value)
    return np.int64(0)
