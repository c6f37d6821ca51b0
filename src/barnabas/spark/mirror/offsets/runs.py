"""Machine: exact translation, from the runs of offsets that this process has copied.

The runs of a partition are in ascending order. Runs that continue one another become one, so that a partition whose
records have no gaps has a single run, and each committed transaction begins another. The newest RUNS_MAX are kept. An
offset outside of them is translated by the offset syncs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.ports import CopiedRange, OffsetRun
from barnabas.spark.mirror.records import OffsetSync

RUNS_MAX: Final = 4096
"""Runs kept for a partition: about 400 KB."""


class CopiedRuns:
    """The runs of all source partitions of a pair."""

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._runs: dict[TopicPartition, list[OffsetRun]] = {}

    def add(self, copied: CopiedRange) -> None:
        """What a micro-batch has copied. A range before the known ones replaces them: the copying began anew."""
        for run in copied.runs:
            runs = self._runs.setdefault(copied.partition, [])
            if runs and (run.upstream <= runs[-1].last_upstream or run.downstream <= runs[-1].last_downstream):
                runs.clear()
            if runs and _continues(runs[-1], run):
                runs[-1] = OffsetRun(runs[-1].upstream, runs[-1].downstream, runs[-1].count + run.count)
            else:
                runs.append(run)
            if len(runs) > self._runs_max:
                del runs[: len(runs) - self._runs_max]

    def forget(self, partition: TopicPartition) -> None:
        self._runs.pop(partition, None)

    def downstream(self, partition: TopicPartition, upstream: int) -> int | None:
        """The offset of the copy from which on the records are those from `upstream` on; None if it is not known."""
        runs = self._runs.get(partition, [])
        place = bisect_right(runs, upstream, key=lambda run: run.upstream) - 1
        if place < 0:
            return None
        run = runs[place]
        return run.downstream + min(upstream - run.upstream, run.count)

    def upstream(self, partition: TopicPartition, downstream: int) -> int | None:
        """The reverse of `downstream`."""
        runs = self._runs.get(partition, [])
        place = bisect_right(runs, downstream, key=lambda run: run.downstream) - 1
        if place < 0:
            return None
        run = runs[place]
        return run.upstream + min(downstream - run.downstream, run.count)


def _continues(run: OffsetRun, following: OffsetRun) -> bool:
    return following.upstream == run.last_upstream + 1 and following.downstream == run.last_downstream + 1


def syncs_of(copied: CopiedRange, committed: Iterable[int]) -> list[OffsetSync]:
    """The offset syncs of what a micro-batch has copied, in ascending order: one for each of the upstream offsets that
    groups have committed, if it lies in the range, and one for the last record.

    A committed offset without a record of its own gets the sync of the record before it: MirrorMaker translates what is
    beyond a sync to the offset after it, which is exact there.
    """
    if not copied.runs:
        return []
    runs = copied.runs
    found = {}
    for upstream in committed:
        place = bisect_right(runs, upstream, key=lambda run: run.upstream) - 1
        if place >= 0:
            run = runs[place]
            at = min(upstream - run.upstream, run.count - 1)
            found[run.upstream + at] = run.downstream + at
    found[runs[-1].last_upstream] = runs[-1].last_downstream
    return [OffsetSync(copied.partition, upstream, found[upstream]) for upstream in sorted(found)]
