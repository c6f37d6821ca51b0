"""Codec: the loops that decode record bytes, compiled by numba. Layouts are drawn in `records/batch.py`.

Every read is checked against the end of the input. A kernel returns a code for damaged data and never reads beyond the
end.
Varints are decoded in int64 (numba would turn a mix of int64 and uint64 into a float).
"""

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

OK = 0
BAD_LENGTH = 1
BAD_OFFSET = 2
BAD_FIELD = 3
BAD_HEADERS = 4
BAD_END = 5
NO_ROOM = 6

REASONS = {
    BAD_LENGTH: "a record's length leaves the batch",
    BAD_OFFSET: "offset deltas do not increase within the batch's range",
    BAD_FIELD: "a key or value leaves its record",
    BAD_HEADERS: "record headers do not fit their record",
    BAD_END: "bytes remain after the records, or inside one",
    NO_ROOM: "more records than declared",
}


# The types of the output arrays: offsets, timestamps, segment_of, key (at, len), value (at, len), headers (at, len).
_SCAN_OUT = (OUT_I64, OUT_I64, OUT_I32, OUT_I64, OUT_I32, OUT_I64, OUT_I32, OUT_I64, OUT_I32)


@kernel()
def read_varint(data: Any, at: Any, end: Any) -> Any:
    """Decode a zigzag int32. Returns the value and the position after it; position -1 if it does not end before
    `end`."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    raw = np.int64(data[at])
    at += 1
    if raw < 0x80:  # the most common case
        return (raw >> 1) ^ -(raw & 1), at
    raw &= 0x7F
    shift = 7
    while shift <= 28:
        if at >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(data[at])
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@kernel()
def read_varlong(data: Any, at: Any, end: Any) -> Any:
    """Decode a zigzag int64. Returns the value and the position after it; position -1 if it does not end before
    `end`."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    raw = np.int64(data[at])
    at += 1
    if raw < 0x80:  # the most common case
        return (raw >> 1) ^ -(raw & 1), at
    raw &= 0x7F
    shift = 7
    while shift <= 63:
        if at >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(data[at])
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@kernel()
def skip_headers(data: Any, at: Any, end: Any) -> Any:
    """The position after the headers that start at `at`, or -1 when they do not fit before `end`."""
    count, at = read_varint(data, at, end)
    if at < 0 or count < 0 or count > end - at:
        return np.int64(-1)
    for _ in range(count):
        length, at = read_varint(data, at, end)
        if at < 0 or length < 0 or length > end - at:
            return np.int64(-1)
        length, at = read_varint(data, at + length, end)
        if at < 0 or length < -1 or length > end - at:
            return np.int64(-1)
        if length > 0:
            at += length
    return at


@kernel((BYTES, I64, I64, scalar, scalar, scalar, *_SCAN_OUT))
def scan(
    data: Any,
    segments: Any,
    append_times: Any,
    width: Any,
    first_offset: Any,
    end_offset: Any,
    offsets: Any,
    timestamps: Any,
    segment_of: Any,
    key_at: Any,
    key_len: Any,
    value_at: Any,
    value_len: Any,
    headers_at: Any,
    headers_len: Any,
) -> Any:
    """Find every record of the segments whose offset lies in [first_offset, end_offset).

    `segments` is a table of `width` = 6 columns, row by row: start, end, record count, base offset, last offset delta,
    base timestamp. `append_times` has, for each segment, the timestamp of all its records, or the smallest int64 if
    each record has a timestamp of its own. The other arrays get one row for each record that was found: lengths of -1
    mean null; `headers_at` is the position of the header count. Returns (number of rows, code, damaged segment).
    """
    row = np.int64(0)
    own_time = np.int64(-0x8000000000000000)
    for s in range(append_times.shape[0]):
        at = segments[s * width]
        end = segments[s * width + 1]
        base_offset = segments[s * width + 3]
        last_delta_max = segments[s * width + 4]
        base_timestamp = segments[s * width + 5]
        append_time = append_times[s]
        if at < 0 or end > data.shape[0]:
            return row, BAD_LENGTH, s
        last_delta = np.int64(-1)
        for _ in range(segments[s * width + 2]):
            length, at = read_varint(data, at, end)
            if at < 0 or length < 0 or length > end - at:
                return row, BAD_LENGTH, s
            stop = at + length
            timestamp_delta, at = read_varlong(data, at + 1, stop)
            if at < 0:
                return row, BAD_FIELD, s
            delta, at = read_varint(data, at, stop)
            if at < 0 or delta <= last_delta or delta > last_delta_max:
                return row, BAD_OFFSET, s
            last_delta = delta
            key_length, at = read_varint(data, at, stop)
            if at < 0 or key_length < -1 or key_length > stop - at:
                return row, BAD_FIELD, s
            key = at
            if key_length > 0:
                at += key_length
            value_length, at = read_varint(data, at, stop)
            if at < 0 or value_length < -1 or value_length > stop - at:
                return row, BAD_FIELD, s
            value = at
            if value_length > 0:
                at += value_length
            headers = at
            if at < stop and data[at] == 0:
                at += 1
            else:
                at = skip_headers(data, at, stop)
            if at < 0:
                return row, BAD_HEADERS, s
            if at != stop:
                return row, BAD_END, s
            offset = base_offset + delta
            if offset < first_offset or offset >= end_offset:
                continue
            if row >= offsets.shape[0]:
                return row, NO_ROOM, s
            offsets[row] = offset
            timestamps[row] = base_timestamp + timestamp_delta if append_time == own_time else append_time
            segment_of[row] = s
            key_at[row] = key
            key_len[row] = key_length
            value_at[row] = value
            value_len[row] = value_length
            headers_at[row] = headers
            headers_len[row] = at - headers
            row += 1
        if at != end:
            return row, BAD_END, s
    return row, OK, np.int64(-1)


@kernel((I32,))
def measure(lengths: Any) -> Any:
    """The total size of byte strings of these lengths, and the number of nulls (lengths below 0)."""
    total = np.int64(0)
    nulls = np.int64(0)
    for i in range(lengths.shape[0]):
        length = np.int64(lengths[i])
        if length < 0:
            nulls += 1
        else:
            total += length
    return total, nulls


@kernel((BYTES, I64, I32, OUT_I32, MUTABLE_BYTES, MUTABLE_BYTES))
def gather(data: Any, positions: Any, lengths: Any, out_offsets: Any, out: Any, validity: Any) -> Any:
    """Copy byte strings into Arrow's offsets, data and validity bitmap. Returns 0, or -1 for damaged data.

    If `validity` is empty, no bitmap is written, and there must be no nulls.
    """
    write = np.int64(0)
    has_nulls = validity.shape[0] > 0
    out_offsets[0] = 0
    for i in range(positions.shape[0]):
        length = np.int64(lengths[i])
        if length >= 0:
            start = positions[i]
            if start < 0 or length > data.shape[0] - start or length > out.shape[0] - write:
                return np.int64(-1)
            copy_bytes(out, write, data, start, length)
            write += length
            if has_nulls:
                validity[i >> 3] |= np.uint8(1 << (i & 7))
        elif not has_nulls:
            return np.int64(-1)
        out_offsets[i + 1] = write
    return np.int64(0)


@kernel((BYTES, I64, I32))
def count_headers(data: Any, headers_at: Any, headers_len: Any) -> Any:
    """The total number of headers of these records, or -1 for damaged data."""
    total = np.int64(0)
    for i in range(headers_at.shape[0]):
        end = headers_at[i] + headers_len[i]
        if headers_at[i] < 0 or end > data.shape[0]:
            return np.int64(-1)
        count, at = read_varint(data, headers_at[i], end)
        if at < 0 or count < 0 or count > headers_len[i]:
            return np.int64(-1)
        total += count
    return total


@kernel((BYTES, I64, I32, OUT_I32, OUT_I64, OUT_I32, OUT_I64, OUT_I32))
def find_headers(
    data: Any,
    headers_at: Any,
    headers_len: Any,
    list_offsets: Any,
    key_at: Any,
    key_len: Any,
    value_at: Any,
    value_len: Any,
) -> Any:
    """Compute the positions of each header's key and value, and Arrow's `list_offsets`. Returns the number of headers,
    or -1 for damaged data."""
    found = np.int64(0)
    list_offsets[0] = 0
    for i in range(headers_at.shape[0]):
        end = headers_at[i] + headers_len[i]
        if headers_at[i] < 0 or end > data.shape[0]:
            return np.int64(-1)
        count, at = read_varint(data, headers_at[i], end)
        if at < 0 or count < 0 or count > key_at.shape[0] - found:
            return np.int64(-1)
        for _ in range(count):
            length, at = read_varint(data, at, end)
            if at < 0 or length < 0 or length > end - at:
                return np.int64(-1)
            key_at[found] = at
            key_len[found] = length
            length, at = read_varint(data, at + length, end)
            if at < 0 or length < -1 or length > end - at:
                return np.int64(-1)
            value_at[found] = at
            value_len[found] = length
            if length > 0:
                at += length
            found += 1
        list_offsets[i + 1] = found
    return found
