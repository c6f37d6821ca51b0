"""Value: an immutable mapping that shares almost all of its memory with the mapping from which it was derived.

A cluster image holds up to a hundred thousand topics, and every committed batch of metadata records makes a new image.
Copying one dict of that size for each change would take milliseconds. Here the entries are divided into shards of
about 32 entries, and `evolve` copies only the changed shards and the tuple that lists all shards.

    shards: ( {a: ., b: .}, {c: .}, {}, ... )       shard of a key = its stable hash & (len(shards) - 1)

The hash is stable across processes (no PYTHONHASHSEED), so iteration order is reproducible under simulation.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID
from zlib import crc32

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SHARD_TARGET: Final = 32


class PersistentMap(Mapping[K, V]):
    """An immutable mapping in shards. Build the first one with `of`, derive the next ones with `evolve`."""

    __slots__ = ("_len", "_mask", "_shards")

    _shards: tuple[dict[K, V], ...]
    _len: int
    _mask: int

    def __init__(self, shards: tuple[dict[K, V], ...] = ({},), length: int = 0) -> None:
        self._shards = shards
        self._len = length
        self._mask = len(shards) - 1

    @staticmethod
    def of(items: Mapping[K, V]) -> PersistentMap[K, V]:
        """A mapping with all `items`, with as many shards as they need."""
        count = 1
        while count * _SHARD_TARGET * 2 < len(items):
            count *= 2
        shards: list[dict[K, V]] = [{} for _ in range(count)]
        mask = count - 1
        for key, value in items.items():
            shards[_stable_hash(key) & mask][key] = value
        return PersistentMap(tuple(shards), len(items))

    def evolve(self, updates: Mapping[K, V] | None = None, removals: Iterable[K] = ()) -> PersistentMap[K, V]:
        """This mapping without the keys `removals`, and then with the entries `updates`; it is not changed itself.

        Absent keys in `removals` are ignored.
        """
        shards = list(self._shards)
        mask = self._mask
        fresh: set[int] = set()
        length = self._len

        def writable(key: K) -> dict[K, V]:
            index = _stable_hash(key) & mask
            if index not in fresh:
                shards[index] = shards[index].copy()
                fresh.add(index)
            return shards[index]

        for key in removals:
            if key in self:
                shard = writable(key)
                if key in shard:
                    del shard[key]
                    length -= 1
        for key, value in (updates or {}).items():
            shard = writable(key)
            if key not in shard:
                length += 1
            shard[key] = value
        if not fresh:
            return self
        result = PersistentMap(tuple(shards), length)
        if length > len(shards) * _SHARD_TARGET * 2:
            return PersistentMap.of(dict(result.items()))
        return result

    def __getitem__(self, key: K) -> V:
        return self._shards[_stable_hash(key) & self._mask][key]

    def get(self, key: K, default: Any = None) -> Any:
        return self._shards[_stable_hash(key) & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._shards[_stable_hash(key) & self._mask]

    def differing(self, other: PersistentMap[K, V]) -> Iterator[tuple[Mapping[K, V], Mapping[K, V]]]:
        """The parts of this mapping and of `other` that may differ, in pairs with the same keys or none. Maps that were
        derived from each other share most of their shards, which are left out."""
        if self._mask != other._mask:
            yield self, other
            return
        for old, new in zip(self._shards, other._shards, strict=True):
            if old is not new:
                yield old, new

    def __iter__(self) -> Iterator[K]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return self._len

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, PersistentMap):
            if self._len != other._len:
                return False
            if self._mask == other._mask:
                return self._shards == other._shards
        if isinstance(other, Mapping):
            return dict(self.items()) == dict(other.items())
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal by content, and contents need not be hashable

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"


def _stable_hash(key: object) -> int:
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, UUID):
        number = key.int
        return (number ^ number >> 64) & 0xFFFFFFFF
    if isinstance(key, int):
        return key & 0xFFFFFFFF
    if key is None:
        return 0
    if isinstance(key, tuple):
        result = 0
        for part in key:
            result = (result * 31 + _stable_hash(part)) & 0xFFFFFFFF
        return result
    raise TypeError(f"a PersistentMap cannot hash keys of type {type(key).__name__}")
