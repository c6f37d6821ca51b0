"""Machine: collects which downstream offsets the copied records of one partition got, as runs without a gap."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from barnabas.client.values import WrittenBatch
from barnabas.spark.mirror.ports import OffsetRun

RUNS_MAX: Final = 512
"""The runs that are kept of one partition and micro-batch: the first, and the newest. More of them come of source
partitions with many transaction markers or compacted records."""

Upstream = tuple[int, int]
"""The first offset and the number of records with consecutive upstream offsets."""


class RunCollector:
    """The runs of one partition, in order."""

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._first: OffsetRun | None = None
        self._later: deque[OffsetRun] = deque(maxlen=runs_max - 1)

    def add(self, upstream: Sequence[Upstream], written: Sequence[WrittenBatch]) -> None:
        """Add records that were written in this order. Both sides have the same number of records."""
        pieces = iter(written)
        piece = next(pieces, None)
        used = 0
        for first, count in upstream:
            left = count
            while left:
                assert piece is not None, "a record was not written"
                step = min(left, piece.count - used)
                self._append(OffsetRun(first + count - left, piece.offset + used, step))
                left -= step
                used += step
                if used == piece.count:
                    piece, used = next(pieces, None), 0
        assert piece is None, "more records were written than read"

    def _append(self, run: OffsetRun) -> None:
        last = self._later[-1] if self._later else self._first
        if last is not None and _follows(last, run):
            run = OffsetRun(last.upstream, last.downstream, last.count + run.count)
            if self._later:
                self._later[-1] = run
            else:
                self._first = run
        elif self._first is None:
            self._first = run
        else:
            self._later.append(run)

    def runs(self) -> tuple[OffsetRun, ...]:
        return () if self._first is None else (self._first, *self._later)


def _follows(last: OffsetRun, run: OffsetRun) -> bool:
    return run.upstream == last.upstream + last.count and run.downstream == last.downstream + last.count
