"""Value: maps with a newest and a committed view, whose uncommitted changes can be rolled back.

A coordinator applies records to its state before the log has committed them. Until then three things must be possible:
to decide on the newest state, to read the committed state, and to undo changes whose records could not be appended. A
`Timeline` journals every change of the `TimelineMap`s that belong to it:

      first                                       next
        │  change change change change change      │        a change = (map, key, the value before)
        └───────────────┬──────────┬───────────────┘
              seal: offset 17   seal: offset 19             rollback(mark) undoes from the right,
                                                            commit(17) forgets from the left.

Values must not be changed in place; a change stores a new value. (Kafka's SnapshotRegistry keeps a view for each
snapshot; coordinators need only the two views.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Any = object()


class Timeline:
    """The journal shared by all maps of one shard."""

    __slots__ = ("_first", "_journal", "_next", "_seals", "recording")

    def __init__(self) -> None:
        self.recording = True
        """Whether changes are recorded; False while committed records are replayed, which are never rolled back."""
        self._journal: deque[tuple[TimelineMap[Any, Any], Any]] = deque()
        self._seals: deque[tuple[int, int]] = deque()
        self._first = 0
        self._next = 0

    def mark(self) -> int:
        """The current position in the journal, for a later `rollback`."""
        return self._next

    def seal(self, offset: int) -> None:
        """The changes since the last seal become final when the log is committed up to `offset`."""
        if not self._seals or self._seals[-1][1] != self._next:
            self._seals.append((offset, self._next))

    def commit(self, offset: int) -> None:
        """Make the changes sealed at or below `offset` final: the log is committed up to `offset` (exclusive)."""
        seals = self._seals
        while seals and seals[0][0] <= offset:
            end = seals.popleft()[1]
            while self._first < end:
                changed, key = self._journal.popleft()
                changed._forget_oldest(key)
                self._first += 1

    def rollback(self, mark: int) -> None:
        """Undo every change since `mark`."""
        assert mark >= self._first, "committed changes cannot be rolled back"
        while self._next > mark:
            changed, key = self._journal.pop()
            changed._undo_newest(key)
            self._next -= 1
        while self._seals and self._seals[-1][1] > mark:
            self._seals.pop()

    @property
    def uncommitted(self) -> int:
        """The number of uncommitted changes."""
        return self._next - self._first

    def _record(self, changed: TimelineMap[Any, Any], key: Any) -> None:
        self._journal.append((changed, key))
        self._next += 1


class TimelineMap(Generic[K, V]):
    """A dict with a committed view. Methods without `committed` in their name read the newest state."""

    __slots__ = ("_earlier", "_now", "_timeline")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._now: dict[K, V] = {}
        self._earlier: dict[K, deque[V]] = {}  # the values before each uncommitted change, oldest first

    def __getitem__(self, key: K) -> V:
        return self._now[key]

    def get(self, key: K) -> V | None:
        return self._now.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._now

    def __len__(self) -> int:
        return len(self._now)

    def __iter__(self) -> Iterator[K]:
        return iter(self._now)

    def items(self) -> Iterator[tuple[K, V]]:
        return iter(self._now.items())

    def values(self) -> Iterator[V]:
        return iter(self._now.values())

    def snapshot(self) -> dict[K, V]:
        """A copy of the newest state."""
        return dict(self._now)

    def __setitem__(self, key: K, value: V) -> None:
        self._remember(key)
        self._now[key] = value

    def pop(self, key: K) -> V | None:
        """Remove the key. Returns its value, or None if the key is absent."""
        if key not in self._now:
            return None
        self._remember(key)
        return self._now.pop(key)

    def clear(self) -> None:
        for key in list(self._now):
            self.pop(key)

    def committed_get(self, key: K) -> V | None:
        earlier = self._earlier.get(key)
        if earlier:
            value = earlier[0]
            return None if value is _ABSENT else value
        return self._now.get(key)

    def committed_items(self) -> Iterator[tuple[K, V]]:
        if not self._earlier:
            yield from self._now.items()
            return
        for key, value in self._now.items():
            if key not in self._earlier:
                yield key, value
        for key, earlier in self._earlier.items():
            if earlier[0] is not _ABSENT:
                yield key, earlier[0]

    def committed(self) -> dict[K, V]:
        """A copy of the committed state."""
        return dict(self.committed_items())

    @property
    def settled(self) -> bool:
        """Whether this map has no uncommitted change."""
        return not self._earlier

    def _remember(self, key: K) -> None:
        timeline = self._timeline
        if timeline.recording:
            earlier = self._earlier.get(key)
            if earlier is None:
                earlier = self._earlier[key] = deque()
            earlier.append(self._now.get(key, _ABSENT))
            timeline._record(self, key)

    def _forget_oldest(self, key: K) -> None:
        earlier = self._earlier[key]
        earlier.popleft()
        if not earlier:
            del self._earlier[key]

    def _undo_newest(self, key: K) -> None:
        earlier = self._earlier[key]
        value = earlier.pop()
        if value is _ABSENT:
            self._now.pop(key, None)
        else:
            self._now[key] = value
        if not earlier:
            del self._earlier[key]


class TimelineCell(Generic[V]):
    """One value with a committed view."""

    __slots__ = ("_map",)

    def __init__(self, timeline: Timeline, initial: V) -> None:
        self._map: TimelineMap[None, V] = TimelineMap(timeline)
        self._map._now[None] = initial

    @property
    def value(self) -> V:
        return self._map[None]

    @value.setter
    def value(self, value: V) -> None:
        self._map[None] = value

    @property
    def committed(self) -> V:
        earlier = self._map._earlier.get(None)
        return earlier[0] if earlier else self._map[None]
