"""Machine: changes to one persistent map, before they become the next map."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from barnabas.server.metadata.image.persistent import PersistentMap

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class MapDelta(Generic[K, V]):
    """The changes to one map. `changed` has the new value of each changed key; None means that the key is removed."""

    __slots__ = ("_base", "changed")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self.changed: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        if key in self.changed:
            return self.changed[key]
        value: V | None = self._base.get(key)
        return value

    def put(self, key: K, value: V) -> None:
        self.changed[key] = value

    def remove(self, key: K) -> None:
        self.changed[key] = None

    def finish(self) -> PersistentMap[K, V]:
        if not self.changed:
            return self._base
        return self._base.evolve(
            {key: value for key, value in self.changed.items() if value is not None},
            [key for key, value in self.changed.items() if value is None],
        )

    @staticmethod
    def between(before: PersistentMap[K, V], after: PersistentMap[K, V]) -> MapDelta[K, V]:
        """The delta between two maps."""
        delta: MapDelta[K, V] = MapDelta(before)
        if before is after:
            return delta
        removed: list[K] = []
        for old, new in before.differing(after):
            for key, value in new.items():
                if old.get(key) != value:
                    delta.changed[key] = value
            removed += [key for key in old if key not in new]
        delta.changed.update(dict.fromkeys(removed))
        return delta

    def __bool__(self) -> bool:
        return bool(self.changed)
