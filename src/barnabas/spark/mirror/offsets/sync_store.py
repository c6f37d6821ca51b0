"""Machine: the offset syncs of the source partitions, and translation by them.

A partition keeps 64 syncs s[0..63] by upstream offset, the newer ones more densely than the older ones. The rules are
those of Kafka's `OffsetSyncStore`, so that both translate alike after the same syncs:

    A   s[0] is the newest sync
    B   s[i] <= s[j] + 2^j - 2^i     for i < j: slot j is not older than its size allows
    C   s[i] >= s[j] + 2^(i-2)       for i < j, if both slots differ: slots are not too close together

A translated offset is never ahead: a group that begins there may read records again, and does not miss one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.records import OffsetSync

SLOTS: Final = 64
_LONG_MAX: Final = 2**63 - 1
TOO_OLD: Final = -1
"""The translation of an offset before all syncs that are known: no checkpoint can be made of it."""


class OffsetSyncStore:
    """The syncs of one pair of clusters."""

    def __init__(self) -> None:
        self._syncs: dict[TopicPartition, list[OffsetSync]] = {}
        self._only_newest = True
        self.is_loaded = False
        """Whether the topic has been read to its end. Before, nothing is translated."""

    def begin(self, *, only_newest: bool) -> None:
        """Before the topic is read. With `only_newest`, each partition keeps just its newest sync until the topic is
        read to its end, because older checkpoints are unknown and translation must not go back (KAFKA-15905)."""
        self._only_newest = only_newest

    def loaded(self) -> None:
        """The topic has been read to its end."""
        self.is_loaded = True

    def add(self, sync: OffsetSync) -> None:
        """A record of the topic, in the order of the topic."""
        slots = self._syncs.get(sync.partition)
        rewind = slots is not None and sync.upstream < slots[0].upstream
        if slots is None or rewind or (self._only_newest and not self.is_loaded):
            self._syncs[sync.partition] = [sync] * SLOTS
        else:
            self._syncs[sync.partition] = _with_sync(slots, sync)

    def partitions(self) -> Iterable[TopicPartition]:
        return self._syncs.keys()

    def newest(self, partition: TopicPartition) -> OffsetSync | None:
        slots = self._syncs.get(partition)
        return None if slots is None else slots[0]

    def slots(self, partition: TopicPartition) -> list[OffsetSync]:
        """The 64 slots; empty without a sync."""
        return list(self._syncs.get(partition, ()))

    def downstream(self, partition: TopicPartition, upstream: int) -> int | None:
        """The offset of the copy at which a group goes on that has committed `upstream` in the source partition. None
        if nothing is known, TOO_OLD if the offset is before the oldest sync."""
        slots = self._syncs.get(partition)
        if slots is None or not self.is_loaded:
            return None
        for sync in slots:
            if sync.upstream <= upstream:
                # Beyond the sync, only its own record is known to have been read.
                return sync.downstream + (1 if upstream > sync.upstream else 0)
        return TOO_OLD

    def upstream(self, partition: TopicPartition, downstream: int) -> int | None:
        """The reverse: the offset of the source partition at which a group goes on that has committed `downstream` in
        the copy of this source partition. None and TOO_OLD as for `downstream`."""
        slots = self._syncs.get(partition)
        if slots is None or not self.is_loaded:
            return None
        best = max((sync for sync in slots if sync.downstream <= downstream), default=None, key=_by_downstream)
        if best is None:
            return TOO_OLD
        return best.upstream + (1 if downstream > best.downstream else 0)


def _by_downstream(sync: OffsetSync) -> tuple[int, int]:
    return sync.downstream, sync.upstream


def _with_sync(original: list[OffsetSync], sync: OffsetSync) -> list[OffsetSync]:
    """The slots with a newer sync in slot 0, and the slots after it repaired where rule B no longer holds.

    A slot that is repaired gets the oldest of the former syncs that the rules allow there, which are passed over in
    their order; `place` is the next one.
    """
    slots = list(original)
    slots[0] = replacement = sync
    place = 0
    for current in range(1, SLOTS):
        previous = current - 1
        while True:
            candidate = original[place]
            apart = _rule_c(slots[previous], candidate, previous)
            fits_next = current + 1 >= SLOTS or _rule_c(candidate, slots[current + 1], current)
            is_chosen = _rule_b(slots[previous], candidate, previous, current) and apart and fits_next
            if is_chosen:
                replacement = candidate
            repeated = place + 1 < SLOTS and candidate is original[place + 1]
            skip = repeated or not apart
            if is_chosen or skip:
                place += 1
            if place >= current or not skip:
                break
        if _rule_b(slots[previous], slots[current], previous, current):
            break  # the slots after it are unchanged and hold the rules
        slots[current] = replacement
    return slots


def _rule_b(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    bound = older.upstream + (1 << j) - (1 << i)
    return newer is older or bound > _LONG_MAX or newer.upstream <= bound


def _rule_c(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    bound = older.upstream + (1 << max(i - 2, 0))
    return newer is older or (bound <= _LONG_MAX and newer.upstream >= bound)
