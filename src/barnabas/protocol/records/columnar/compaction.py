"""Codec: the operations of compaction on a batch: hashing its keys, and removing some of its records.

Keys are compared by a keyed 128-bit SipHash-2-4. Each cleaning pass uses a new secret, so that a producer cannot create
two keys with the same hash, of which one would delete the other (Kafka's SkimpyOffsetMap uses MD5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import NO_TIMESTAMP, BatchHeader, TimestampType, check_crc
from barnabas.protocol.records.build import attributes_with, seal
from barnabas.protocol.records.columnar._jit import BYTES, I32, I64, OUT_HASHES, U64, kernel, np
from barnabas.protocol.records.columnar.byte_column import ByteColumn
from barnabas.protocol.records.columnar.encode_kernels import sizes, write
from barnabas.protocol.records.columnar.segments import RecordTable, Selection, batch_table
from barnabas.protocol.records.compression import DECOMPRESSED_BYTES_MAX, CompressionType, compress


class KeyScan(NamedTuple):
    """The keys of a batch, with one row per record."""

    offsets: Any
    """The offset of each record (int64)."""
    timestamps: Any
    """The timestamp of each record in milliseconds (int64)."""
    hashes: Any
    """The hash of each record's key (uint64 [rows, 2]); zeros for a null key."""
    has_key: Any
    """Whether each record has a key (bool)."""
    is_tombstone: Any
    """Whether the value of each record is null (bool)."""


@kernel()
def _rotate(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel()
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 += v3
    v3 = _rotate(v3, 16) ^ v2
    v0 += v3
    v3 = _rotate(v3, 21) ^ v0
    v2 += v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@kernel((BYTES, I64, I32, U64, U64, OUT_HASHES))
def siphash(data: Any, positions: Any, lengths: Any, k0: Any, k1: Any, out: Any) -> Any:
    """The 128-bit SipHash-2-4 of each byte string; zeros for null. Returns -1 if a position is out of bounds."""
    for i in range(positions.shape[0]):
        length = np.int64(lengths[i])
        if length < 0:
            out[i, 0] = np.uint64(0)
            out[i, 1] = np.uint64(0)
            continue
        at = positions[i]
        if at < 0 or length > data.shape[0] - at:
            return np.int64(-1)
        v0 = k0 ^ np.uint64(0x736F6D6570736575)
        v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
        v2 = k0 ^ np.uint64(0x6C7967656E657261)
        v3 = k1 ^ np.uint64(0x7465646279746573)
        end = at + length
        for word in range(length // 8 + 1):
            m = np.uint64(0)
            start = at + word * 8
            for j in range(min(end - start, np.int64(8))):
                m |= np.uint64(data[start + j]) << np.uint64(8 * j)
            if word == length // 8:
                m |= np.uint64(length & 0xFF) << np.uint64(56)
            v3 ^= m
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0 ^= m
        v2 ^= np.uint64(0xEE)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        out[i, 0] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        out[i, 1] = v0 ^ v1 ^ v2 ^ v3
    return np.int64(0)


def scan_keys(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    secret: tuple[int, int],
    *,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> KeyScan:
    """The keys of the batch at `pos`, hashed under `secret` (two random 64-bit numbers). Raises CorruptBatchError."""
    table = _open(buf, pos, header, limit_bytes)
    hashes = np.empty((len(table), 2), np.uint64)
    code = siphash(table.data, table.key_at, table.key_len, np.uint64(secret[0]), np.uint64(secret[1]), hashes)
    assert code == 0, "scan has checked these positions"
    return KeyScan(table.offsets, table.timestamps, hashes, table.key_len >= 0, table.value_len < 0)


def retain(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    keep: Any,
    *,
    codec: CompressionType | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The batch at `pos` with only those records for which the bool array `keep` is true; see `build.rebuild_batch`.

    Offsets, producer fields and the offset range do not change. Raises CorruptBatchError, and ValueError if the mask
    and the batch have different lengths.
    """
    table = _open(buf, pos, header, limit_bytes)
    rows = np.flatnonzero(np.asarray(keep, dtype=np.bool_))
    if len(keep) != len(table):
        raise ValueError(f"the mask has {len(keep)} entries, the batch {len(table)} records")
    target = header.codec if codec is None else codec
    horizon = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    count = len(rows)
    times = table.timestamps[rows]
    base_time = horizon if horizon is not None else int(times[0]) if count else header.base_timestamp
    by_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    newest = max(int(times.max()), NO_TIMESTAMP) if count else NO_TIMESTAMP
    rebuilt = header._replace(
        attributes=attributes_with(header, target if count else CompressionType.NONE, horizon is not None),
        base_timestamp=base_time,
        max_timestamp=header.max_timestamp if by_append_time else newest,
        record_count=count,
    )
    payload = _write(table, rows, header.base_offset, times - base_time) if count else b""
    return seal(rebuilt, compress(target, payload, level) if count and target is not CompressionType.NONE else payload)


def _open(buf: Buffer, pos: int, header: BatchHeader, limit_bytes: int) -> RecordTable:
    check_crc(buf, pos, header)
    return batch_table(buf, pos, header, Selection(check_crcs=False, limit_bytes=limit_bytes))


def _write(table: RecordTable, rows: Any, base_offset: int, timestamp_deltas: Any) -> Buffer:
    """The encoded records of these rows. Headers are copied without decoding."""
    key = ByteColumn(table.data, table.key_at[rows], table.key_len[rows])
    value = ByteColumn(table.data, table.value_at[rows], table.value_len[rows])
    headers = ByteColumn(table.data, table.headers_at[rows], table.headers_len[rows])
    deltas = table.offsets[rows] - base_offset
    bodies = np.empty(len(rows), np.int64)
    total = sizes(deltas, timestamp_deltas, key.length, value.length, headers.length, bodies)
    assert total >= 0, "a record of the batch cannot have grown beyond 2 GiB"
    out = np.empty(total, np.uint8)
    end = write(
        out, 0, 0, len(rows), bodies, deltas, timestamp_deltas,
        key.data, key.at, key.length, value.data, value.at, value.length, headers.data, headers.at, headers.length,
    )  # fmt: skip
    assert end == total, "sizes and write agree"
    return memoryview(out)
