"""Machine: which segments have outlived their purpose (Kafka's UnifiedLog.deleteOldSegments).

Whole segments are dropped from the front, for one of three reasons: all of it lies below the log start offset
(whatever the cleanup policy), its youngest record is older than retention.ms, or the log exceeds retention.bytes even
without it. Nothing above the high watermark goes. If even the active segment has expired, a new one is begun first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.storage.segment import Segment

if TYPE_CHECKING:
    from barnabas.storage.log import Log

Reason = Callable[[Segment, int], bool]
"""(segment, offset at which it ends) -> whether it should go."""


def delete_old_segments(self: Log, now_ms: int, high_watermark: int) -> int:
    """Apply retention; the number of segments dropped. Their files are unlinked after file.delete.delay.ms."""
    if self.failed:
        return 0
    with self.guarded():
        dropped = _drop(self, _below_start(self), now_ms, high_watermark)
        if self.config.delete:
            dropped += _drop(self, _too_old(self, now_ms), now_ms, high_watermark)
            dropped += _drop(self, _too_much(self), now_ms, high_watermark)
        return dropped


def _below_start(log: Log) -> Reason:
    return lambda segment, end: end <= log.log_start_offset


def _too_old(log: Log, now_ms: int) -> Reason:
    retention_ms = log.config.retention_ms

    def expired(segment: Segment, end: int) -> bool:
        if retention_ms < 0:
            return False
        youngest = segment.max_timestamp
        return now_ms - (youngest if youngest >= 0 else segment.modified_ms) > retention_ms

    return expired


def _too_much(log: Log) -> Reason:
    limit = log.config.retention_bytes
    excess = log.size_bytes - limit if limit >= 0 else 0

    def surplus(segment: Segment, end: int) -> bool:
        nonlocal excess
        if excess < segment.size or excess <= 0:
            return False
        excess -= segment.size
        return True

    return surplus


def _drop(log: Log, reason: Reason, now_ms: int, high_watermark: int) -> int:
    doomed: list[Segment] = []
    for segment in log.segments:
        following = log.segments.after(segment)
        end = log.log_end_offset if following is None else following.base_offset
        if end > high_watermark or (following is None and segment.size == 0) or not reason(segment, end):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    if doomed[-1] is log.segments.active:
        log.roll(now_ms)
    for segment in doomed:
        log.drop_segment(segment, now_ms)
    log.advance_log_start(max(log.log_start_offset, log.segments.first.base_offset))
    return len(doomed)
