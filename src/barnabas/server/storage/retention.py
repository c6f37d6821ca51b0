"""Machine: which segments have outlived their purpose (Kafka's UnifiedLog.deleteOldSegments).

Whole segments are dropped from the front, for one of three reasons: all of it lies below the log start offset
(whatever the cleanup policy), its youngest record is older than retention.ms, or the log exceeds retention.bytes even
without it. Nothing above the high watermark goes. If even the active segment has expired, a new one is begun first.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from barnabas.server.storage.segments.segment import Segment

if TYPE_CHECKING:
    from barnabas.server.storage.log import Log

Reason = Callable[[Segment, int], bool]
"""(segment, offset at which it ends) -> whether it should go."""


class RetentionVerdict(Enum):
    """The answer to "why is the oldest segment still there?"."""

    BELOW_START = "all of it lies below the log start offset"
    TOO_OLD = "its youngest record is older than retention.ms"
    TOO_MUCH = "the log exceeds retention.bytes even without it"
    OFFLINE = "the log is offline"
    EMPTY = "the log is empty"
    UNREPLICATED = "it reaches above the high watermark"
    KEPT_BY_POLICY = "cleanup.policy does not include delete"
    UNLIMITED = "neither retention.ms nor retention.bytes sets a limit"
    WITHIN_LIMITS = "it is neither too old nor too much"

    @property
    def due(self) -> bool:
        return self in (RetentionVerdict.BELOW_START, RetentionVerdict.TOO_OLD, RetentionVerdict.TOO_MUCH)


class RetentionFacts(Struct, frozen=True):
    """The oldest segment as retention sees it. Times are -1 where there is none."""

    verdict: RetentionVerdict
    first_offset: int = 0
    end_offset: int = 0
    size: int = 0
    is_active: bool = False
    youngest_ms: int = -1
    expires_ms: int = -1
    """When it will be too old."""
    excess_bytes: int = 0
    """By how much the log exceeds retention.bytes (negative: how much room is left); 0 without a limit."""


def explain_retention(log: Log, high_watermark: int, now_ms: int) -> RetentionFacts:
    """Whether retention would delete the oldest segment now, and if not, why and until when. Changes nothing."""
    if log.failed:
        return RetentionFacts(RetentionVerdict.OFFLINE)
    segment, config = log.segments.first, log.config
    end, is_active = _end_of(log, segment), segment is log.segments.active
    facts = RetentionFacts(RetentionVerdict.WITHIN_LIMITS, segment.base_offset, end, segment.size, is_active)
    if is_active and segment.size == 0:
        return replace(facts, verdict=RetentionVerdict.EMPTY)
    youngest = _youngest_ms(segment)
    facts = replace(facts, youngest_ms=youngest)
    if config.delete and config.retention_ms >= 0:
        facts = replace(facts, expires_ms=youngest + config.retention_ms + 1)
    if config.delete and config.retention_bytes >= 0:
        facts = replace(facts, excess_bytes=log.size_bytes - config.retention_bytes)
    return replace(facts, verdict=_verdict(log, segment, end, high_watermark, now_ms))


def _verdict(log: Log, segment: Segment, end: int, high_watermark: int, now_ms: int) -> RetentionVerdict:
    """In the order in which `delete_old_segments` asks."""
    config = log.config
    if end > high_watermark:
        return RetentionVerdict.UNREPLICATED
    if _below_start(log)(segment, end):
        return RetentionVerdict.BELOW_START
    if not config.delete:
        return RetentionVerdict.KEPT_BY_POLICY
    if _too_old(log, now_ms)(segment, end):
        return RetentionVerdict.TOO_OLD
    if _too_much(log)(segment, end):
        return RetentionVerdict.TOO_MUCH
    unlimited = config.retention_ms < 0 and config.retention_bytes < 0
    return RetentionVerdict.UNLIMITED if unlimited else RetentionVerdict.WITHIN_LIMITS


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
        return now_ms - _youngest_ms(segment) > retention_ms

    return expired


def _youngest_ms(segment: Segment) -> int:
    """The largest timestamp of its records; where they have none, when its file was last written."""
    youngest = segment.max_timestamp
    return youngest if youngest >= 0 else segment.modified_ms


def _end_of(log: Log, segment: Segment) -> int:
    following = log.segments.after(segment)
    return log.log_end_offset if following is None else following.base_offset


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
        end = _end_of(log, segment)
        empty = segment.size == 0 and segment is log.segments.active
        if end > high_watermark or empty or not reason(segment, end):
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
