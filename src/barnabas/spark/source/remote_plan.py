"""Machine: which remote segments have the offsets of a range, by the records of `__remote_log_metadata` (KIP-405).

    records of the topic -> fold_segments -> the copies of a partition that can be read
    copies, range        -> cover         -> those to read, in order, and one more behind them

The one more has the markers of the transactions that are open where the range ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from barnabas.core.ids import uuid_to_text
from barnabas.protocol.wire.remote_log_metadata import (
    COPY_SEGMENT_FINISHED,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    TopicIdPartitionEntry,
)
from barnabas.protocol.wire.schema import Message


@dataclass(frozen=True, slots=True)
class RemoteCopy:
    """A remote segment that can be read."""

    start: int
    end: int
    """The offset after the last one."""
    size: int
    """The bytes of the log file."""
    last_epoch: int
    """The leader epoch of the last record."""
    name: str
    """The names of the objects, without the key prefix and without the suffix."""
    has_aborted: bool
    """Whether there may be a transaction index."""


@dataclass(frozen=True, slots=True)
class RemoteCopies:
    """The remote segments of a range."""

    copies: tuple[RemoteCopy, ...]
    local_start: int
    """Where the leader's local log starts: records from there on are not read from the object store."""

    def part(self, start: int, end: int) -> RemoteCopies | None:
        """The remote segments of a part of the range; None if it needs none."""
        copies = cover(self.copies, start, min(end, self.local_start))
        return RemoteCopies(copies, self.local_start) if copies else None


def fold_segments(messages: Iterable[Message], topic_id: UUID, partition: int) -> list[RemoteCopy]:
    """The copies of one partition that are complete and not being deleted, by start offset."""
    begun: dict[UUID, RemoteLogSegmentMetadataRecord] = {}
    finished: dict[UUID, RemoteLogSegmentMetadataRecord] = {}
    for message in messages:
        if isinstance(message, RemoteLogSegmentMetadataRecord):
            if _belongs(message.remote_log_segment_id.topic_id_partition, topic_id, partition):
                begun[message.remote_log_segment_id.id] = message
        elif isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
            segment_id = message.remote_log_segment_id.id
            record = begun.get(segment_id)
            if record is not None and message.remote_log_segment_state == COPY_SEGMENT_FINISHED:
                finished[segment_id] = record
            elif record is not None:
                begun.pop(segment_id)  # being deleted: a later event does not bring it back
                finished.pop(segment_id, None)
    copies = [_copy(record) for record in finished.values() if record.segment_leader_epochs]
    return sorted(copies, key=lambda copy: (copy.start, copy.end))


def _belongs(entry: TopicIdPartitionEntry, topic_id: UUID, partition: int) -> bool:
    return entry.id == topic_id and entry.partition == partition


def _copy(record: RemoteLogSegmentMetadataRecord) -> RemoteCopy:
    segment = record.remote_log_segment_id
    entry = segment.topic_id_partition
    directory = f"{entry.name}-{uuid_to_text(entry.id)}/{entry.partition}"
    return RemoteCopy(
        record.start_offset,
        record.end_offset + 1,
        record.segment_size_in_bytes,
        max(epoch.leader_epoch for epoch in record.segment_leader_epochs),
        f"{directory}/{record.start_offset:020d}-{uuid_to_text(segment.id)}",
        not record.txn_index_empty,
    )


def cover(copies: Sequence[RemoteCopy], start: int, end: int) -> tuple[RemoteCopy, ...]:
    """The copies with the offsets from `start` to before `end`, as far as they go without a gap, and one more. Where
    several copies have an offset, the one that reaches furthest is chosen."""
    chosen: list[RemoteCopy] = []
    position = start
    while start < end:
        found = max((c for c in copies if c.start <= position < c.end), key=lambda c: c.end, default=None)
        if found is None:
            break
        chosen.append(found)
        if position >= end:
            break
        position = found.end
    return tuple(chosen)
