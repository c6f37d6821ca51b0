"""Codec: the loops that add a header to encoded record headers, compiled by numba. Layout: `protocol/records/batch.py`.

The headers of a row are its header count and the headers, as `scan` finds them in a batch; `scan` has checked them.
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
)
from barnabas.protocol.records.columnar.encode_kernels import put_varint, varint_size
from barnabas.protocol.records.columnar.kernels import read_varint

ADD = 0
KEEP = 1
DROP = 2


@kernel()
def equals(data: Any, at: Any, length: Any, wanted: Any) -> Any:
    """Whether these bytes are `wanted`."""
    same = length == wanted.shape[0]
    i = np.int64(0)
    while same and i < length:
        same = data[at + i] == wanted[i]
        i += 1
    return same


@kernel((BYTES, I64, I32, BYTES, BYTES, OUT_I32))
def judge_headers(data: Any, headers_at: Any, headers_len: Any, name: Any, refused: Any, verdicts: Any) -> Any:
    """Write to `verdicts`, for each row: DROP if a header `name` has the value `refused`, KEEP if there is a header
    `name` with another value, else ADD. Returns the number of rows that are not dropped."""
    kept = np.int64(0)
    for i in range(headers_at.shape[0]):
        end = headers_at[i] + headers_len[i]
        count, at = read_varint(data, headers_at[i], end)
        verdict = ADD
        for _ in range(count):
            length, at = read_varint(data, at, end)
            found = equals(data, at, length, name)
            size, at = read_varint(data, at + length, end)
            if found:
                verdict = DROP if size >= 0 and equals(data, at, size, refused) else max(verdict, KEEP)
                if verdict == DROP:
                    break
            at += max(size, np.int64(0))
        verdicts[i] = verdict
        if verdict != DROP:
            kept += 1
    return kept


@kernel((BYTES, I64, I32, I32, BYTES, OUT_I64, OUT_I32))
def measure_headers(
    data: Any, headers_at: Any, headers_len: Any, verdicts: Any, entry: Any, out_at: Any, out_len: Any
) -> Any:
    """Compute the position and the size of the headers of each row after `entry`, an encoded header, was appended
    where the verdict is ADD. Returns the size of all of them."""
    total = np.int64(0)
    for i in range(headers_at.shape[0]):
        size = np.int64(headers_len[i])
        if verdicts[i] == ADD:
            count, at = read_varint(data, headers_at[i], headers_at[i] + size)
            size += varint_size(count + 1) - (at - headers_at[i]) + entry.shape[0]
        out_at[i] = total
        out_len[i] = size
        total += size
    return total


@kernel((BYTES, I64, I32, I32, BYTES, I64, MUTABLE_BYTES))
def append_header(
    data: Any, headers_at: Any, headers_len: Any, verdicts: Any, entry: Any, out_at: Any, out: Any
) -> Any:
    """Write the headers of each row to `out`, at the positions that `measure_headers` has computed."""
    for i in range(headers_at.shape[0]):
        begin = headers_at[i]
        end = begin + headers_len[i]
        at = out_at[i]
        if verdicts[i] == ADD:
            count, begin = read_varint(data, begin, end)
            at = put_varint(out, at, count + 1)
        copy_bytes(out, at, data, begin, end - begin)
        if verdicts[i] == ADD:
            copy_bytes(out, at + (end - begin), entry, 0, entry.shape[0])
    return np.int64(0)
