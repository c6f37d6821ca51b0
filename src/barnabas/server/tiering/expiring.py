"""Machine: which remote segments the leader deletes, and where the log starts afterwards.

retention.ms and retention.bytes apply to the whole log, remote and local, each record counted once. The log start
offset is raised before anything is deleted, so that no reader is sent to a segment that is gone. Segments are deleted
from the oldest on, up to the first that is to stay. Three kinds of segments are deleted regardless of their age:

* segments below the log start offset (DeleteRecords, or an earlier deletion that was interrupted),
* segments all of whose leader epochs are older than the log's first one: the log cannot refer to them any more,
* segments that nobody is copying, although their copy has begun: a leader died, or failed to clean up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.tiering.lineage import covers, segments_of
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.values import RemoteSegment, RemoteSegmentId, RemoteSegmentState


class LocalLogView(Struct, frozen=True):
    """What the decision needs to know of the leader's log."""

    lineage: tuple[EpochEntry, ...]
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    bytes_only_local: int
    """The size of the local segments that have not been copied."""
    retention_ms: int
    """The topic's retention.ms; -1: no limit."""
    retention_bytes: int
    """The topic's retention.bytes; -1: no limit."""
    deletes: bool
    """Whether cleanup.policy includes delete. Without it, only DeleteRecords moves the log start."""


class Expiry(Struct, frozen=True):
    """The decision. First `log_start_offset` takes effect, then the segments are deleted."""

    log_start_offset: int
    segments: tuple[RemoteSegment, ...]


def expired_segments(
    remote: RemoteLog, local: LocalLogView, now_ms: int, copying: Collection[RemoteSegmentId] = ()
) -> Expiry:
    """What is to be deleted now. `copying` has the segments that this leader is copying."""
    start = _new_log_start(remote, local, now_ms)
    oldest = local.lineage[0].epoch if covers(local.lineage, local.log_start_offset) else None
    gone = tuple(
        segment for segment in remote.segments() if segment.id not in copying and _is_garbage(segment, start, oldest)
    )
    return Expiry(start, gone)


def _new_log_start(remote: RemoteLog, local: LocalLogView, now_ms: int) -> int:
    """The log start offset after retention."""
    kept = segments_of(remote, local.lineage, local.log_end_offset)
    start = _after_deletions(remote, local, kept)
    if not local.deletes:
        return start
    total = sum(segment.size_bytes for segment in kept) + local.bytes_only_local
    excess = total - local.retention_bytes if local.retention_bytes >= 0 else 0
    for segment in kept:
        too_old = local.retention_ms >= 0 and now_ms - _youngest_ms(segment) > local.retention_ms
        too_much = excess >= segment.size_bytes > 0
        if not too_old and not too_much:
            break
        start = segment.end_offset + 1
        excess -= segment.size_bytes
    return start


def _after_deletions(remote: RemoteLog, local: LocalLogView, kept: Sequence[RemoteSegment]) -> int:
    """The log start offset, raised above copies that exist no more: a leader deleted them, and died before all replicas
    knew the log start offset that it had set before."""
    start, first = local.log_start_offset, local.local_log_start_offset
    if kept:
        first = min(first, kept[0].start_offset)
    was_copied = remote.highest_copied(local.lineage, local.log_end_offset) >= start
    return first if was_copied and start < first else start


def _youngest_ms(segment: RemoteSegment) -> int:
    """The largest timestamp of the segment's records; if no record has one, the time of the copy."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.event_timestamp


def _is_garbage(segment: RemoteSegment, log_start_offset: int, oldest_epoch: int | None) -> bool:
    if segment.state is not RemoteSegmentState.COPY_SEGMENT_FINISHED:
        return True
    if segment.end_offset < log_start_offset:
        return True
    newest = max((epoch for epoch, _ in segment.leader_epochs), default=-1)
    return oldest_epoch is not None and newest < oldest_epoch


def remote_size_bytes(remote: RemoteLog, lineage: Sequence[EpochEntry], log_end_offset: int) -> int:
    """The size of the log's records in the object store, each counted once (Kafka's RemoteLogSizeBytes)."""
    return sum(segment.size_bytes for segment in segments_of(remote, lineage, log_end_offset))
