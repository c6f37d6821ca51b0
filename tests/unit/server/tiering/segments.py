"""Remote segments for tests."""

from __future__ import annotations

from uuid import UUID

from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.values import (
    RemotePartition,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
)

PARTITION = RemotePartition(UUID(int=42), 0, "t")
FINISHED = RemoteSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteSegmentState.DELETE_SEGMENT_FINISHED


def segment(
    number: int,
    start: int,
    end: int,
    epochs: dict[int, int] | None = None,
    *,
    size: int = 100,
    max_timestamp: int = 0,
) -> RemoteSegment:
    """A segment with the offsets `start` to `end`, inclusive, whose copy has begun; one epoch 0 by default."""
    entries = tuple(EpochEntry(*entry) for entry in sorted((epochs or {0: start}).items()))
    return RemoteSegment(RemoteSegmentId(PARTITION, UUID(int=number)), start, end, 1, max_timestamp, 0, entries, size)


def finish(remote: RemoteLog, *segments: RemoteSegment) -> None:
    """Apply the events of complete copies."""
    for each in segments:
        assert remote.apply(each)
        assert remote.apply(each.update(FINISHED, 1, 0))


def lineage(*entries: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*entry) for entry in entries)
