"""Machine: which batches of a partition belong to aborted transactions, and what committed offsets become.

A transaction is known by its producer id: its batches lie between the end of the producer's previous transaction and
the marker that ends this one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from barnabas.protocol.records.batch import BatchHeader


class LogTransactions:
    """The transactions of one partition, in the order of the log."""

    def __init__(self) -> None:
        self._ends: dict[int, list[tuple[int, bool]]] = {}

    def on_marker(self, producer_id: int, offset: int, *, commit: bool) -> None:
        """The marker at `offset` ends the producer's transaction. Markers come in the order of their offsets."""
        self._ends.setdefault(producer_id, []).append((offset, commit))

    def is_committed(self, header: BatchHeader) -> bool:
        """Whether a read_committed consumer gets the batch, which must be one of data, sooner or later."""
        if not header.is_transactional:
            return True
        ends = self._ends.get(header.producer_id, [])
        place = bisect_left(ends, (header.base_offset, False))
        return place < len(ends) and ends[place][1]


class OffsetTranslation:
    """Translates committed offsets of one partition while its records get new offsets, in order."""

    def __init__(self, committed: Iterable[int]) -> None:
        self._waiting = sorted(set(committed), reverse=True)
        self._found: dict[int, int] = {}

    def on_records(self, offsets: Sequence[int], target: int) -> None:
        """The records with these offsets in the source have the offsets from `target` on in the target."""
        while self._waiting and offsets and self._waiting[-1] <= offsets[-1]:
            committed = self._waiting.pop()
            self._found[committed] = target + bisect_left(offsets, committed)

    def finish(self, target_end: int) -> dict[int, int]:
        """The new offset of each committed one: that of the first restored record which the group has not read."""
        for committed in self._waiting:
            self._found[committed] = target_end
        self._waiting = []
        return self._found
