"""Machine: how far consumer groups are behind, in records and in seconds.

The lag in seconds is the age of the oldest record that a group has not read. No record is opened for it: the machine
remembers the end offset of each partition at the times at which it looked, and finds the time at which the end passed
the committed offset. A group that is behind since before the first look has the lag since that look, which is a lower
bound.

A commit is always read before the end of its partition. The other order would find groups ahead of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.ids import TopicPartition

HISTORY_MAX: Final = 240
"""The most remembered ends of one partition. When there are more, every second one of the older half is forgotten."""


class GroupOffset(Struct, frozen=True):
    """A committed offset of a group."""

    group: str
    partition: TopicPartition
    offset: int


class GroupLag(Struct, frozen=True):
    """The lag of a group on one partition. `records` is None if the end of the partition is not known."""

    group: str
    partition: TopicPartition
    offset: int
    records: int | None
    seconds: float


class EndHistory:
    """The ends of one partition at earlier times. Times are in seconds."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ends: list[int] = []

    def add(self, now: float, end: int) -> None:
        """The end is `end` now."""
        times, ends = self._times, self._ends
        if len(ends) >= 2 and ends[-1] == ends[-2] == end:
            times[-1] = now  # the same end since the last but one look: only the first and the last time matter
            return
        if ends and end < ends[-1]:  # truncated, or created again
            times.clear()
            ends.clear()
        times.append(now)
        ends.append(end)
        if len(times) > HISTORY_MAX:
            half = HISTORY_MAX // 2
            self._times = times[:half:2] + times[half:]
            self._ends = ends[:half:2] + ends[half:]

    def seconds_behind(self, now: float, offset: int) -> float:
        """The age of the record at `offset`; 0 if there is no such record."""
        times, ends = self._times, self._ends
        if not ends or offset >= ends[-1]:
            return 0.0
        place = bisect_right(ends, offset)  # the first look at which the end was beyond the offset
        if place == 0:
            return now - times[0]
        before, after = times[place - 1], times[place]
        share = (offset - ends[place - 1]) / (ends[place] - ends[place - 1])
        return now - (before + (after - before) * share)


class LagTable:
    """The lags at the last look."""

    def __init__(self) -> None:
        self.lags: list[GroupLag] = []
        self._histories: dict[TopicPartition, EndHistory] = {}

    def update(self, now: float, committed: Iterable[GroupOffset], ends: Mapping[TopicPartition, int]) -> None:
        """Compute the lags. `ends` has the high watermarks, read after `committed`."""
        for partition, end in ends.items():
            self._histories.setdefault(partition, EndHistory()).add(now, end)
        wanted: set[TopicPartition] = set()
        lags: list[GroupLag] = []
        for entry in committed:
            partition = entry.partition
            wanted.add(partition)
            history, known = self._histories.get(partition), ends.get(partition)
            records = None if known is None else max(known - entry.offset, 0)
            seconds = 0.0 if history is None or not records else max(history.seconds_behind(now, entry.offset), 0.0)
            lags.append(GroupLag(entry.group, partition, entry.offset, records, round(seconds, 3)))
        self.lags = lags
        for partition in [each for each in self._histories if each not in wanted]:
            del self._histories[partition]
