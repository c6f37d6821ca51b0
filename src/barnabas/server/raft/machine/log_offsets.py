"""Machine: the log's start, end, epochs and snapshots, which Raft has to know without reading the log.

The log has two ends: `end_offset` is the end of the records written, `synced_offset` the end of the records that are
durable. Each change of the log has a ticket number. When the disk reports a ticket as synced, the changes up to that
ticket are durable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from enum import Enum

from msgspec import Struct

from barnabas.server.raft.errors import IllegalRaftStateError
from barnabas.server.raft.machine.values import LogSummary, OffsetAndEpoch, RaftBatch


class OffsetValidity(Enum):
    """The result of comparing a follower's end of the log with the leader's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class ValidOffsetAndEpoch(Struct, frozen=True):
    """How a follower's log agrees with the leader's log, and the offset for the response (Kafka's class of this
    name)."""

    kind: OffsetValidity
    offset_and_epoch: OffsetAndEpoch
    """VALID: the follower's end. DIVERGING: where the logs diverge. SNAPSHOT: the snapshot that the follower needs."""


class RaftLogOffsets:
    """Describes the log on the disk. A caller that changes this object also adds the effect that changes the log on the
    disk in the same way."""

    def __init__(self, summary: LogSummary) -> None:
        self.start = summary.start
        self.end_offset = summary.end_offset
        self.synced_offset = summary.end_offset
        self.snapshots = sorted(summary.snapshots)
        self._epochs = [epoch for epoch, _ in summary.epochs]
        self._starts = [offset for _, offset in summary.epochs]
        self._ticket = 0
        self._unsynced: deque[tuple[int, int]] = deque()

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else self.start.epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log. Raft compares logs by their ends: by the last epoch first, then by the end offset."""
        return OffsetAndEpoch(self.last_epoch, self.end_offset)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def is_synced(self) -> bool:
        return not self._unsynced

    def end_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch in the log that is not above `epoch`, and the end offset of that epoch (Kafka's
        endOffsetForEpoch). If all epochs in the log are above `epoch`, the start of the log."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return self.start
        end = self._starts[index] if index < len(self._starts) else self.end_offset
        return OffsetAndEpoch(self._epochs[index - 1], end)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else self.start.epoch

    def validate_offset_and_epoch(self, offset: int, epoch: int) -> ValidOffsetAndEpoch:
        """Compare a follower's log with this one (Kafka's RaftLog.validateOffsetAndEpoch). The follower's log ends at
        `offset`, and its last record has the epoch `epoch`."""
        if self.start.offset == 0 and offset == 0:
            return ValidOffsetAndEpoch(OffsetValidity.VALID, OffsetAndEpoch(0, 0))
        if self.snapshots:
            earliest, latest = self.snapshots[0], self.snapshots[-1]
            if (
                offset < self.start.offset
                or (offset == self.start.offset and epoch != self.start.epoch)
                or epoch < earliest.epoch
            ):
                return ValidOffsetAndEpoch(OffsetValidity.SNAPSHOT, latest)
        end = self.end_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return ValidOffsetAndEpoch(OffsetValidity.DIVERGING, end)
        return ValidOffsetAndEpoch(OffsetValidity.VALID, OffsetAndEpoch(epoch, offset))

    def truncation_point(self, diverging: OffsetAndEpoch) -> int:
        """The offset to which a follower truncates, given the leader's diverging epoch and its end offset (KIP-595)."""
        mine = self.end_for_epoch(diverging.epoch)
        return min(mine.offset, diverging.offset) if mine.epoch == diverging.epoch else mine.offset

    # ---- changes; each returns the ticket that is reported once the change is durable

    def append(self, batch: RaftBatch) -> int:
        if batch.base_offset != self.end_offset or batch.epoch < self.last_epoch:
            raise IllegalRaftStateError(
                f"A batch at {batch.base_offset} of epoch {batch.epoch} does not follow the log's end {self.end}."
            )
        if not self._epochs or batch.epoch > self._epochs[-1]:
            self._epochs.append(batch.epoch)
            self._starts.append(batch.base_offset)
        self.end_offset = batch.next_offset
        return self._changed()

    def truncate(self, offset: int) -> int:
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)
        self._unsynced = deque((ticket, min(end, offset)) for ticket, end in self._unsynced)
        return self._changed()

    def start_at(self, snapshot_id: OffsetAndEpoch) -> int:
        """Replace the log by a snapshot. The snapshot is durable, so the synced offset is its end."""
        self._epochs.clear()
        self._starts.clear()
        self._unsynced.clear()
        self.snapshots = [snapshot_id]
        self.start = snapshot_id
        self.end_offset = self.synced_offset = snapshot_id.offset
        return self._changed()

    def add_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshots.append(snapshot_id)

    def advance_start(self, snapshot_id: OffsetAndEpoch) -> None:
        self.start = snapshot_id
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.offset >= snapshot_id.offset]
        keep = max(bisect_right(self._starts, snapshot_id.offset) - 1, 0)
        del self._starts[:keep], self._epochs[:keep]
        if self._starts and self.end_offset == snapshot_id.offset:
            self._starts.clear()
            self._epochs.clear()
        elif self._starts:
            self._starts[0] = max(self._starts[0], snapshot_id.offset)

    def synced(self, ticket: int) -> None:
        while self._unsynced and self._unsynced[0][0] <= ticket:
            _, end = self._unsynced.popleft()
            self.synced_offset = max(self.synced_offset, end)

    def _changed(self) -> int:
        self._ticket += 1
        self._unsynced.append((self._ticket, self.end_offset))
        return self._ticket
