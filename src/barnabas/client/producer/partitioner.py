"""Machine: chooses the partition of a record: murmur2 of the key as in Java, or sticky and adaptive as in KIP-794.

Records without a key stay with one partition for the bytes of one batch, then move to another, chosen at random. With
adaptive partitioning, partitions with shorter queues are chosen more often, so that slow brokers get fewer records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from barnabas.core.buffers import Buffer
from barnabas.core.hashing import murmur2
from barnabas.core.rng import Rng

KEY_CACHE_MAX: Final = 65_536
"""The number of keys whose hashes are cached, because keys repeat and murmur2 in Python is slow."""


class Partitioner(Protocol):
    """A custom partitioner: chooses the partition of a record, given the number of partitions."""

    def __call__(self, topic: str, key: Buffer | None, value: Buffer | None, partitions: int) -> int: ...


class KeyHasher:
    """`murmur2(key) & 0x7fffffff`, with a cache."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def partition(self, key: Buffer, partitions: int) -> int:
        known = self._known
        data = bytes(key)
        hashed = known.get(data)
        if hashed is None:
            if len(known) >= KEY_CACHE_MAX:
                known.clear()
            hashed = known[data] = murmur2(data) & 0x7FFFFFFF
        return hashed % partitions


class StickyPartitioner:
    """The current partition of one topic's records without keys (Kafka's BuiltInPartitioner)."""

    __slots__ = ("_cumulative", "_partitions", "_rng", "_sticky_bytes", "current", "produced_bytes")

    def __init__(self, sticky_bytes: int, rng: Rng) -> None:
        self._sticky_bytes = max(sticky_bytes, 1)
        self._rng = rng
        self._partitions: Sequence[int] = ()
        self._cumulative: list[int] = []
        self.current = -1
        self.produced_bytes = 0

    def choose(self, partitions: int) -> int:
        """The partition of the next record of a topic with `partitions` partitions."""
        if not 0 <= self.current < partitions:
            self.current = self._next(partitions)
            self.produced_bytes = 0
        return self.current

    def on_appended(self, size: int, partitions: int, *, batch_closed: bool) -> None:
        """Count a record of `size` bytes, and change to another partition after `sticky_bytes` bytes.

        While the batch is still open the limit is twice as high, so that no half-empty batch is left.
        """
        self.produced_bytes += size
        if (
            self.produced_bytes >= self._sticky_bytes and batch_closed
        ) or self.produced_bytes >= self._sticky_bytes * 2:
            self.current = self._next(partitions)
            self.produced_bytes = 0

    def update_load(self, queue_sizes: Mapping[int, int]) -> None:
        """Set the number of waiting batches of each available partition. An empty mapping weights all partitions
        equally."""
        if len(queue_sizes) < 2:
            self._partitions, self._cumulative = tuple(queue_sizes), []
            return
        self._partitions = tuple(queue_sizes)
        highest = max(queue_sizes.values()) + 1
        total = 0
        self._cumulative = []
        for partition in self._partitions:
            total += highest - queue_sizes[partition]
            self._cumulative.append(total)

    def _next(self, partitions: int) -> int:
        if self._cumulative and max(self._partitions) < partitions:
            drawn = self._rng.randrange(self._cumulative[-1])
            return self._partitions[bisect_right(self._cumulative, drawn)]
        if len(self._partitions) == 1 and self._partitions[0] < partitions:
            return self._partitions[0]
        return self._rng.randrange(partitions)
