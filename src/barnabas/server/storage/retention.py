"""Shell: deleting old segments (Kafka's UnifiedLog.deleteOldSegments), and the log start offset.

Retention deletes whole segments, the oldest first. A segment is deleted for one of three reasons: all its records lie
below the log start offset (under any cleanup policy), its youngest record is older than retention.ms, or the log
exceeds retention.bytes even without the segment. A segment that reaches above the high watermark is not deleted. If the
active segment has expired, a new segment is begun first.

In a tiered log (KIP-405) local.retention.* takes the place of retention.*, a segment is deleted only after it has been
copied to the object store, and the log start offset stays: the log has the records still. Tiered storage raises it.
With remote.log.copy.disable the copies expire first. When none is left, the log is retained like one without copies.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.storage.deleting import SegmentDeleter
from barnabas.server.storage.flushing import LogFlusher
from barnabas.server.storage.rolling import roll_if_filled
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.state import LogState

Condition = Callable[[Segment, int], bool]
"""A function of a segment and its end offset that returns whether the segment is to be deleted."""


class RetentionVerdict(Enum):
    """Why retention deletes the oldest segment of a log, or does not delete it."""

    BELOW_START = "all of it lies below the log start offset"
    TOO_OLD = "its youngest record is older than retention.ms"
    TOO_MUCH = "the log exceeds retention.bytes even without it"
    OFFLINE = "the log is offline"
    EMPTY = "the log is empty"
    UNREPLICATED = "it reaches above the high watermark"
    NOT_COPIED = "tiered storage has not copied it yet"
    MIRROR = "the topic is a mirror, whose log start offset follows the source's"
    KEPT_BY_POLICY = "cleanup.policy does not include delete"
    UNLIMITED = "neither retention.ms nor retention.bytes sets a limit"
    WITHIN_LIMITS = "it is neither too old nor too much"

    @property
    def due(self) -> bool:
        return self in (RetentionVerdict.BELOW_START, RetentionVerdict.TOO_OLD, RetentionVerdict.TOO_MUCH)


class RetentionStatus(Struct, frozen=True):
    """Whether retention would delete the oldest segment of a log, and why or why not. An unknown time is -1."""

    verdict: RetentionVerdict
    first_offset: int = 0
    end_offset: int = 0
    size: int = 0
    is_active: bool = False
    youngest_ms: int = -1
    expires_ms: int = -1
    """The time at which the segment exceeds retention.ms, or in a tiered log local.retention.ms."""
    excess_bytes: int = 0
    """By how many bytes the log exceeds retention.bytes, or in a tiered log local.retention.bytes. Negative below the
    limit, 0 without a limit."""


def explain_retention(state: LogState, high_watermark: int, now_ms: int) -> RetentionStatus:
    """Whether retention would delete the oldest segment now, and if not, why and until when. Changes nothing."""
    if state.failure is not None:
        return RetentionStatus(RetentionVerdict.OFFLINE)
    segment, config = state.segments.first, state.config
    end, is_active = _end_of(state, segment), segment is state.segments.active
    status = RetentionStatus(RetentionVerdict.WITHIN_LIMITS, segment.base_offset, end, segment.size, is_active)
    if is_active and segment.size == 0:
        return replace(status, verdict=RetentionVerdict.EMPTY)
    youngest = _youngest_ms(segment)
    status = replace(status, youngest_ms=youngest)
    limits, ages = config.limits, config.delete or config.copies or state.is_continued_below
    if ages and limits.ms >= 0:
        status = replace(status, expires_ms=youngest + limits.ms + 1)
    if ages and limits.bytes >= 0:
        status = replace(status, excess_bytes=state.size_bytes - limits.bytes)
    return replace(status, verdict=_verdict(state, segment, end, high_watermark, now_ms))


def _verdict(state: LogState, segment: Segment, end: int, high_watermark: int, now_ms: int) -> RetentionVerdict:
    """Why the segment would be deleted or kept. The conditions are checked in the order of
    `SegmentRetention.enforce_retention`."""
    config = state.config
    if end > high_watermark:
        return RetentionVerdict.UNREPLICATED
    if _below_start(state)(segment, end):
        return RetentionVerdict.BELOW_START
    if config.is_mirror:
        return RetentionVerdict.MIRROR
    has_copies = config.copies or state.is_continued_below
    if has_copies and not _is_copied(state)(segment, end):
        return RetentionVerdict.NOT_COPIED
    if not config.delete and not has_copies:
        return RetentionVerdict.KEPT_BY_POLICY
    if _too_old(state, now_ms)(segment, end):
        return RetentionVerdict.TOO_OLD
    if _too_much(state)(segment, end):
        return RetentionVerdict.TOO_MUCH
    unlimited = config.limits == (-1, -1)
    return RetentionVerdict.UNLIMITED if unlimited else RetentionVerdict.WITHIN_LIMITS


def _below_start(state: LogState) -> Condition:
    return lambda segment, end: end <= state.log_start_offset


def _is_copied(state: LogState) -> Condition:
    return lambda segment, end: end <= min(state.highest_copied_offset + 1, state.recovery_point)


def _too_old(state: LogState, now_ms: int) -> Condition:
    retention_ms = state.config.limits.ms

    def expired(segment: Segment, end: int) -> bool:
        if retention_ms < 0:
            return False
        return now_ms - _youngest_ms(segment) > retention_ms

    return expired


def _youngest_ms(segment: Segment) -> int:
    """The largest timestamp of the segment's records, or the file's modification time if no record has a timestamp."""
    youngest = segment.max_timestamp
    return youngest if youngest >= 0 else segment.modified_ms


def _end_of(state: LogState, segment: Segment) -> int:
    following = state.segments.after(segment)
    return state.log_end_offset if following is None else following.base_offset


def _too_much(state: LogState) -> Condition:
    limit = state.config.limits.bytes
    excess = state.size_bytes - limit if limit >= 0 else 0

    def surplus(segment: Segment, end: int) -> bool:
        nonlocal excess
        if excess < segment.size or excess <= 0:
            return False
        excess -= segment.size
        return True

    return surplus


class SegmentRetention:
    """Deletes the old segments of one log and advances its start."""

    __slots__ = ("_deleter", "_flusher", "_state")

    def __init__(self, state: LogState, flusher: LogFlusher, deleter: SegmentDeleter) -> None:
        self._state = state
        self._flusher = flusher
        self._deleter = deleter

    def enforce_retention(self, now_ms: int, high_watermark: int) -> int:
        """Delete the segments that retention does not keep, and return their number; see `Log.enforce_retention`."""
        state = self._state
        if state.failure is not None:
            return 0
        with state.guarded():
            deleted = self._delete_while(_below_start(state), now_ms, high_watermark)
            if state.config.copies or state.is_continued_below:
                deleted += self._delete_copied(_too_old(state, now_ms), now_ms, high_watermark)
                deleted += self._delete_copied(_too_much(state), now_ms, high_watermark)
            elif state.config.delete and not state.config.is_mirror:
                deleted += self._delete_while(_too_old(state, now_ms), now_ms, high_watermark)
                deleted += self._delete_while(_too_much(state), now_ms, high_watermark)
            return deleted

    def _delete_copied(self, condition: Condition, now_ms: int, high_watermark: int) -> int:
        """Delete the oldest segments that satisfy `condition` and have been copied. Returns their number.

        The snapshot of the producers at the new local start must be on the disk: after a power failure it could not be
        rebuilt from the records below, as in a log that has them.
        """
        is_copied = _is_copied(self._state)
        return self._delete_while(
            lambda segment, end: is_copied(segment, end) and condition(segment, end), now_ms, high_watermark
        )

    def _delete_while(self, condition: Condition, now_ms: int, high_watermark: int) -> int:
        """Delete the oldest segments up to the first that does not satisfy `condition`. Returns their number."""
        state = self._state
        has_copies = state.config.copies or state.is_continued_below
        expired: list[Segment] = []
        for segment in state.segments:
            end = _end_of(state, segment)
            empty = segment.size == 0 and segment is state.segments.active
            if end > high_watermark or empty or not condition(segment, end):
                break
            expired.append(segment)
        if not expired:
            return 0
        if expired[-1] is state.segments.active:
            roll_if_filled(state, self._flusher, now_ms)
        for segment in expired:
            self._deleter.delete_segment(segment, now_ms)
        if not has_copies:
            advance_log_start(state, max(state.log_start_offset, state.segments.first.base_offset))
        return len(expired)

    def delete_records(self, before_offset: int, high_watermark: int, now_ms: int) -> int:
        """Raise the log start offset to `before_offset` and apply retention; see `Log.delete_records`."""
        state = self._state
        if not state.config.delete and state.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {state.topic_partition} cannot be deleted: cleanup.policy does not include 'delete'",
            )
        offset = high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{state.topic_partition} cannot be deleted up to {before_offset}: its high watermark is "
                f"{high_watermark}",
            )
        advance_log_start(state, offset)
        self.enforce_retention(now_ms, high_watermark)
        return state.log_start_offset


def advance_log_start(state: LogState, offset: int) -> bool:
    """Raise the log start offset to `offset`; see `Log.advance_log_start`."""
    if offset > state.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{state.topic_partition} ends at {state.log_end_offset} and cannot start at {offset}",
        )
    if offset <= state.log_start_offset:
        return False
    with state.guarded():
        state.log_start_offset = offset
        state.epochs.truncate_from_start(offset)
        state.save_epochs()
        state.producers.on_log_start(offset)
        for listener in state.listeners:
            listener.on_log_start_advanced()
        return True
