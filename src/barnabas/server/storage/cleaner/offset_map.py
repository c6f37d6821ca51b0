"""Value: hash of a key -> newest offset, in a fixed amount of memory (Kafka's SkimpyOffsetMap).

    slot   { hash word 0 uint64 | hash word 1 uint64 | offset + 1 uint64, 0 while free }

A slot has 24 bytes in native byte order. The map uses open addressing with double hashing: the first word of the hash
determines the first slot, the second word the step. The number of slots is prime, so every slot is reached. The keys
are not stored, so two keys with the same 128-bit hash would be mistaken for one key. The hash is keyed with a secret of
the pass, so that a producer cannot construct such keys.

The memory is an anonymous mapping, whose pages are only allocated when they are written to.
"""

from __future__ import annotations

from mmap import mmap

from barnabas.server.storage.cleaner.errors import CleaningError
from barnabas.server.storage.cleaner.task import MAP_ENTRY_BYTES

_WORDS = 3


class OffsetMap:
    """A map of at most `capacity` keys. `words` is the table, which the kernels of `columns.py` access directly."""

    __slots__ = ("capacity", "slots", "used", "words")

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        self.slots = largest_prime(size_bytes // MAP_ENTRY_BYTES)
        self.capacity = int(self.slots * min(load_factor, 0.95))
        self.used = 0
        if self.capacity < 1:
            raise CleaningError(
                f"{size_bytes} bytes are too few for one key: raise log.cleaner.dedupe.buffer.size "
                "or lower log.cleaner.threads"
            )
        self.words = memoryview(mmap(-1, self.slots * MAP_ENTRY_BYTES)).cast("Q")

    def put(self, first: int, second: int, offset: int) -> bool:
        """Store `offset` if it is the newest of its key. Returns False if the map is full and the key is new."""
        words, slots = self.words, self.slots
        slot, step = first % slots, 1 + second % (slots - 1)
        while True:
            at = slot * _WORDS
            held = words[at + 2]
            if not held:
                if self.used >= self.capacity:
                    return False
                words[at], words[at + 1], words[at + 2] = first, second, offset + 1
                self.used += 1
                return True
            if words[at] == first and words[at + 1] == second:
                if held <= offset:
                    words[at + 2] = offset + 1
                return True
            slot += step
            if slot >= slots:
                slot -= slots

    def get(self, first: int, second: int) -> int:
        """The newest offset of the key, -1 if unknown."""
        words, slots = self.words, self.slots
        slot, step = first % slots, 1 + second % (slots - 1)
        while True:
            at = slot * _WORDS
            held = words[at + 2]
            if not held:
                return -1
            if words[at] == first and words[at + 1] == second:
                return held - 1
            slot += step
            if slot >= slots:
                slot -= slots


def largest_prime(limit: int) -> int:
    """The largest prime that is not above `limit`; 0 if `limit` is below 3, because double hashing needs a step."""
    for candidate in range(limit, 2, -1):
        if candidate % 2 and all(candidate % d for d in range(3, int(candidate**0.5) + 1, 2)):
            return candidate
    return 0
