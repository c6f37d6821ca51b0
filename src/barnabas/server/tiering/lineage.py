"""Machine: whether the records of a remote segment are those of a log.

A log's lineage is its list of leader epochs with their start offsets. A remote segment has the same records as the log
if at each of its offsets both have the same leader epoch. Retention, look-ups by timestamp and sizes consider only such
segments: after an unclean election, the segments of the previous leader may have other records at the same offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.values import RemoteSegment


def is_in_lineage(segment: RemoteSegment, lineage: Sequence[EpochEntry], log_end_offset: int) -> bool:
    """Whether the segment has the log's records.

    `lineage` is sorted. Its first entry begins at the log's start; what the segment has below is not compared.
    """
    if not lineage or segment.end_offset >= log_end_offset:
        return False
    first = max(segment.start_offset, lineage[0].start_offset)
    if first > segment.end_offset:
        return False  # all of it lies below the log's start
    steps = {first}
    steps.update(e.start_offset for e in (*segment.leader_epochs, *lineage))
    return all(
        epoch_at(segment.leader_epochs, offset) == epoch_at(lineage, offset)
        for offset in sorted(steps)
        if first <= offset <= segment.end_offset
    )


def epoch_at(epochs: Sequence[EpochEntry], offset: int) -> int | None:
    """The leader epoch of the record at `offset`, or None below the first epoch."""
    slot = bisect_right(epochs, offset, key=lambda e: e.start_offset)
    return epochs[slot - 1].epoch if slot else None


def epochs_between(lineage: Iterable[EpochEntry], start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
    """The leader epochs of the records in [start, end), the first of which begins at `start_offset`."""
    found: list[EpochEntry] = []
    for epoch, start in sorted(lineage):
        if start <= start_offset:
            found = [EpochEntry(epoch, start_offset)]
        elif start < end_offset:
            found.append(EpochEntry(epoch, start))
    return tuple(found)


def segments_of(remote: RemoteLog, lineage: Sequence[EpochEntry], log_end_offset: int) -> list[RemoteSegment]:
    """The readable segments of a log, by start offset, each offset once as far as the segments permit.

    Two leaders may have copied the same offsets. A segment that ends no higher than the segments before it is left out.
    """
    found: list[RemoteSegment] = []
    reached = -1
    for segment in remote.readable_segments():
        if segment.end_offset > reached and is_in_lineage(segment, lineage, log_end_offset):
            reached = segment.end_offset
            found.append(segment)
    return found


def copied_through(segments: Iterable[RemoteSegment], start_offset: int) -> int:
    """The last offset of a log of which everything from `start_offset` on has a copy now; -1 if `start_offset` has
    none. `segments` are those of `segments_of`.

    A local segment up to this offset may be deleted. `RemoteLog.highest_copied` also counts copies that have been
    deleted since, as all are when tiered storage was disabled for the topic and is enabled again.
    """
    reached = start_offset
    for segment in segments:
        if segment.start_offset > reached:
            break
        reached = max(reached, segment.end_offset + 1)
    return reached - 1 if reached > start_offset else -1


def covers(lineage: Sequence[EpochEntry], offset: int) -> bool:
    """Whether the lineage has the leader epoch of the record at `offset`. A log whose lineage does not reach down
    to its start has lost the list; then nothing may be concluded from an epoch that is not in it."""
    return bool(lineage) and lineage[0].start_offset <= offset


def find_segment(remote: RemoteLog, lineage: Sequence[EpochEntry], offset: int) -> RemoteSegment | None:
    """The readable segment whose offsets include `offset` of the log with this lineage, or None."""
    epoch = epoch_at(lineage, offset)
    return None if epoch is None else remote.find(epoch, offset)
