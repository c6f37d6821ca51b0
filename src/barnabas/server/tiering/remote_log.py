"""Machine: the remote segments of one partition, as the events of `__remote_log_metadata` describe them.

`apply` is the only place where the state changes. Every broker that hosts the partition applies the same events in the
same order, and so has the same state. An event that does not fit the state changes nothing: it comes from a leader that
has been replaced while it copied or deleted (Kafka's RemoteLogMetadataCache raises an error instead, and goes on).

Segments are found by leader epoch and offset, never by offset alone. After an unclean election two leaders may have
copied different records at the same offsets; the epoch, which the reader takes from its own log, tells them apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.tiering.values import (
    PartitionDeleteState,
    RemoteLogEvent,
    RemotePartitionDelete,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)


class EpochRange(NamedTuple):
    """The part of one leader epoch that a remote segment contains, with its first and last offset."""

    start_offset: int
    end_offset: int
    id: RemoteSegmentId


def epoch_ranges(segment: RemoteSegment) -> Iterator[tuple[int, EpochRange]]:
    """The leader epochs of a segment, each with its range of offsets. An epoch without records is left out."""
    epochs = segment.leader_epochs
    for number, (epoch, start_offset) in enumerate(epochs):
        end_offset = epochs[number + 1].start_offset - 1 if number + 1 < len(epochs) else segment.end_offset
        first = max(start_offset, segment.start_offset)
        if first <= end_offset:
            yield epoch, EpochRange(first, end_offset, segment.id)


class _RemoteEpoch:
    """The readable segments of one leader epoch. Neither the starts nor the ends of the ranges decrease."""

    __slots__ = ("highest_offset", "ranges")

    def __init__(self) -> None:
        self.ranges: list[EpochRange] = []
        self.highest_offset = -1
        """The highest offset ever copied in this epoch. A deletion does not lower it, so that no leader copies the
        deleted offsets again."""

    def add(self, added: EpochRange) -> None:
        self.highest_offset = max(self.highest_offset, added.end_offset)
        for known in self.ranges:
            if known.start_offset <= added.start_offset and added.end_offset <= known.end_offset:
                if known[:2] != added[:2]:
                    return  # an earlier copy has all of it, and more
                break  # of two copies of the same offsets, the later one is read
        kept = [r for r in self.ranges if r.start_offset < added.start_offset or r.end_offset > added.end_offset]
        kept.append(added)
        self.ranges = sorted(kept, key=lambda r: r.start_offset)

    def remove(self, segment: RemoteSegmentId) -> None:
        self.ranges = [r for r in self.ranges if r.id != segment]

    def find(self, offset: int) -> EpochRange | None:
        slot = bisect_right(self.ranges, offset, key=lambda r: r.start_offset) - 1
        if slot < 0 or self.ranges[slot].end_offset < offset:
            return None
        return self.ranges[slot]


class RemoteLog:
    """The remote segments of one partition."""

    __slots__ = ("_epochs", "_segments", "delete_state")

    def __init__(self) -> None:
        self._segments: dict[RemoteSegmentId, RemoteSegment] = {}
        self._epochs: dict[int, _RemoteEpoch] = {}
        self.delete_state: PartitionDeleteState | None = None
        """How far the deletion of the partition is; None while its topic exists."""

    def apply(self, event: RemoteLogEvent) -> bool:
        """Change the state by one event. Returns False if the event does not fit the state and changed nothing."""
        match event:
            case RemoteSegment():
                return self._begin(event)
            case RemoteSegmentUpdate():
                return self._update(event)
            case RemotePartitionDelete():
                return self._delete_partition(event)

    def _begin(self, segment: RemoteSegment) -> bool:
        known = self._segments.get(segment.id)
        if segment.state is not RemoteSegmentState.COPY_SEGMENT_STARTED or self.delete_state is not None:
            return False
        if known is not None and known.state is not segment.state:
            return False
        self._segments[segment.id] = segment
        return True

    def _update(self, update: RemoteSegmentUpdate) -> bool:
        known = self._segments.get(update.id)
        if known is None or not known.state.may_become(update.state):
            return False
        segment = known.updated(update)
        self._segments[update.id] = segment
        if segment.is_readable and not known.is_readable:
            for epoch, part in epoch_ranges(segment):
                self._epochs.setdefault(epoch, _RemoteEpoch()).add(part)
        elif known.is_readable and not segment.is_readable:
            self._withdraw(segment)
        if update.state is RemoteSegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[update.id]
        return True

    def _withdraw(self, gone: RemoteSegment) -> None:
        """Do not find a segment any more. Another copy of its offsets, which the segment stood for, is found again."""
        for epoch, _ in epoch_ranges(gone):
            self._epochs[epoch].remove(gone.id)
        for segment in self._segments.values():
            overlaps = segment.start_offset <= gone.end_offset and gone.start_offset <= segment.end_offset
            if overlaps and segment.is_readable:
                for epoch, part in epoch_ranges(segment):
                    self._epochs[epoch].add(part)

    def _delete_partition(self, event: RemotePartitionDelete) -> bool:
        if self.delete_state is not None and not self.delete_state.may_become(event.state):
            return False
        self.delete_state = event.state
        return True

    # -- queries -------------------------------------------------------------------------------------------------------

    def get(self, segment: RemoteSegmentId) -> RemoteSegment | None:
        """The segment with this id, or None if it is unknown or deleted."""
        return self._segments.get(segment)

    def segments(self) -> list[RemoteSegment]:
        """All segments that are not deleted, in any state, by start offset."""
        return sorted(self._segments.values(), key=lambda s: (s.start_offset, s.end_offset, s.id))

    def readable_segments(self) -> list[RemoteSegment]:
        """The segments whose copy is complete and which are not being deleted, by start offset."""
        return [segment for segment in self.segments() if segment.is_readable]

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The readable segment with the record at `offset` of leader epoch `epoch`, or None."""
        known = self._epochs.get(epoch)
        found = None if known is None else known.find(offset)
        return None if found is None else self._segments[found.id]

    def highest_offset(self, epoch: int) -> int:
        """The highest offset of leader epoch `epoch` that has ever been copied, or -1."""
        known = self._epochs.get(epoch)
        return -1 if known is None else known.highest_offset

    def highest_copied(self, lineage: Iterable[EpochEntry], log_end_offset: int) -> int:
        """The highest offset that has been copied of a log with the leader epochs `lineage`, or -1.

        The newest epoch with a copy decides (Kafka's findHighestRemoteOffset). Of that epoch a previous leader may have
        copied more than this log has; these records were lost in an unclean election and do not count.
        """
        end = log_end_offset
        for epoch, start_offset in sorted(lineage, reverse=True):
            highest = min(self.highest_offset(epoch), end - 1)
            if highest >= start_offset:
                return highest
            end = start_offset
        return -1
