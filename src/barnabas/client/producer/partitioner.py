"""Machine: which partition a record goes to: murmur2 of the key as in Java, or the sticky adaptive way of KIP-794.

Without a key, records stay with one partition until a batch's worth of bytes has gone there, then move to another at
random. With adaptive partitioning a partition is the likelier the shorter its queue is, so slow brokers get less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from barnabas.core.buffers import Buffer
from barnabas.core.hashing import murmur2
from barnabas.core.rng import Rng

KEY_CACHE_MAX: Final = 65_536
"""Hashes of this many keys are remembered; keys repeat, and murmur2 in Python is not free."""


class Partitioner(Protocol):
    """A custom choice: the partition for a record, given the number of partitions."""

    def __call__(self, topic: str, key: Buffer | None, value: Buffer | None, partitions: int) -> int: ...


class KeyHasher:
    """`murmur2(key) & 0x7fffffff` with a memory."""

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
    """The partition that keyless records of one topic stick to (Kafka's BuiltInPartitioner)."""

    __slots__ = ("_cumulative", "_partitions", "_rng", "_sticky_bytes", "current", "produced_bytes")

    def __init__(self, sticky_bytes: int, rng: Rng) -> None:
        self._sticky_bytes = max(sticky_bytes, 1)
        self._rng = rng
        self._partitions: Sequence[int] = ()
        self._cumulative: list[int] = []
        self.current = -1
        self.produced_bytes = 0

    def choose(self, partitions: int) -> int:
        """The partition for the next record of a topic with so many partitions."""
        if not 0 <= self.current < partitions:
            self.current = self._next(partitions)
            self.produced_bytes = 0
        return self.current

    def on_appended(self, size: int, partitions: int, *, batch_closed: bool) -> None:
        """A record of `size` bytes went to the sticky partition. Time to move on?

        With the batch still open, we stay up to twice the limit, so that half-empty batches are not left behind.
        """
        self.produced_bytes += size
        if (
            self.produced_bytes >= self._sticky_bytes and batch_closed
        ) or self.produced_bytes >= self._sticky_bytes * 2:
            self.current = self._next(partitions)
            self.produced_bytes = 0

    def update_load(self, queue_sizes: Mapping[int, int]) -> None:
        """How many batches wait for each available partition; none known means: all alike."""
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
