"""Codec: the two hash functions that Kafka uses to choose partitions.

`murmur2` chooses the partition of a record key (`Utils.murmur2` of Kafka's clients). `java_string_hash` chooses the
coordinator partition of a group id or transactional id (`String.hashCode`). Both must be equal to Java's results.
"""

from __future__ import annotations

import sys

from barnabas.core.buffers import Buffer

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_UTF_16 = f"utf-16-{sys.byteorder[0]}e"


def murmur2(data: Buffer) -> int:
    """The 32-bit unsigned value of Kafka's murmur2 over `data` (seed 0x9747b28c)."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    tail = length - whole
    if tail:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition that Kafka's default partitioner chooses for a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: signed 32 bits over UTF-16 code units."""
    h = 0
    for unit in memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        h = (31 * h + unit) & _MASK
    return h - (1 << 32) if h & 0x80000000 else h


def coordinator_partition(key: str, partitions: int) -> int:
    """The partition of a coordinator topic that owns a group id or transactional id (`Utils.abs(hash) % n`)."""
    h = java_string_hash(key)
    return (0 if h == -(1 << 31) else abs(h)) % partitions
