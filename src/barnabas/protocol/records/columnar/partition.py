"""Codec: Kafka's default partitioner for whole key columns (murmur2, as in `core/hashing.py`)."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.records.columnar._jit import BYTES, I32, I64, OUT_I32, kernel, np, scalar
from barnabas.protocol.records.columnar.byte_column import ByteColumn, from_arrow


@kernel((BYTES, I64, I32, scalar, OUT_I32))
def murmur2_partitions(data: Any, positions: Any, lengths: Any, partitions: Any, out: Any) -> Any:
    """Write each key's partition to `out`, -1 for a null key. Returns 0, or -1 if a key lies outside of the data."""
    mask = np.int64(0xFFFFFFFF)
    m = np.int64(0x5BD1E995)
    for i in range(positions.shape[0]):
        length = np.int64(lengths[i])
        if length < 0:
            out[i] = -1
            continue
        at = positions[i]
        if at < 0 or length > data.shape[0] - at:
            return np.int64(-1)
        h = np.int64(0x9747B28C) ^ length
        whole = at + (length & ~np.int64(3))
        end = at + length
        while at < whole:
            k = np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
            k |= np.int64(data[at + 3]) << 24
            k = (k * m) & mask
            k = ((k ^ (k >> 24)) * m) & mask
            h = ((h * m) & mask) ^ k
            at += 4
        if at < end:
            k = np.int64(0)
            for j in range(end - at):
                k |= np.int64(data[at + j]) << (8 * j)
            h = ((h ^ k) * m) & mask
        h = ((h ^ (h >> 13)) * m) & mask
        h ^= h >> 15
        out[i] = (h & 0x7FFFFFFF) % partitions
    return np.int64(0)


def partitions_for_keys(keys: Any, partitions: int) -> Any:
    """int32 partition numbers for a binary or string column, -1 for null keys, which the caller distributes."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    column = keys if isinstance(keys, ByteColumn) else from_arrow(keys)
    out = np.empty(len(column), np.int32)
    if murmur2_partitions(column.data, column.at, column.length, partitions, out) < 0:
        raise ValueError("the keys' offsets point outside their data: validate the Arrow array")
    return out


def rows_by_partition(partition_of_row: Any, partitions: int) -> list[Any]:
    """Row numbers per partition, in their original order, for `encode_from_arrow(rows=...)`.

    Rows with the partition number -1 are left out.
    """
    order = np.argsort(partition_of_row, kind="stable")
    cuts = np.searchsorted(partition_of_row[order], np.arange(partitions + 1))
    return [order[cuts[p] : cuts[p + 1]] for p in range(partitions)]
