"""Machine: the part of a log that can be compacted, and whether a pass is due (Kafka's LogCleanerManager)."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from barnabas.server.storage.config import LONG_MAX
from barnabas.server.storage.log import Log
from barnabas.server.storage.segments.segment import Segment


class CleaningVerdict(Enum):
    """Why a partition is compacted or not."""

    DIRTY_ENOUGH = "the dirty ratio exceeds min.cleanable.dirty.ratio"
    LAG_EXCEEDED = "the oldest dirty record is older than max.compaction.lag.ms"
    NOT_COMPACTED = "cleanup.policy does not include compact"
    MIRROR = "the topic is a mirror, which has the source's batches as they are"
    OFFLINE = "the log is offline"
    MOVING = "the replica is being moved to another log directory"
    EMPTY = "the log is empty"
    ALL_CLEAN = "everything that may be cleaned is clean"
    ACTIVE_SEGMENT = "all dirty records lie in the active segment, which is never cleaned (segment.bytes, segment.ms)"
    UNSTABLE = "the dirty records lie at or above the last stable offset (an open transaction, or the high watermark)"
    TOO_YOUNG = "the dirty records are younger than min.compaction.lag.ms"
    NOT_DIRTY_ENOUGH = "the dirty ratio does not exceed min.cleanable.dirty.ratio"

    @property
    def due(self) -> bool:
        return self in (CleaningVerdict.DIRTY_ENOUGH, CleaningVerdict.LAG_EXCEEDED)

    @property
    def possible(self) -> bool:
        """Whether a pass is possible. A pass that is not due is possible too."""
        return self not in (
            CleaningVerdict.NOT_COMPACTED,
            CleaningVerdict.MIRROR,
            CleaningVerdict.OFFLINE,
            CleaningVerdict.MOVING,
            CleaningVerdict.EMPTY,
        )


class CleanableLog(Struct, frozen=True):
    """The part of a log that can be compacted, and whether a pass is due."""

    verdict: CleaningVerdict
    first_dirty_offset: int = 0
    upper_offset: int = 0
    """The base offset of the first segment that must not be compacted."""
    clean_bytes: int = 0
    cleanable_bytes: int = 0
    detail: str = ""
    limit: CleaningVerdict = CleaningVerdict.ACTIVE_SEGMENT
    """Why segments from `upper_offset` on are not compacted: ACTIVE_SEGMENT, UNSTABLE or TOO_YOUNG."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def __str__(self) -> str:
        return f"{self.verdict.value}{': ' if self.detail else ''}{self.detail}"


def assess(log: Log, high_watermark: int, now_ms: int) -> CleanableLog:
    """Find the part of `log` that a pass would compact now. Reads the segments' timestamps if a lag is configured."""
    config = log.config
    if log.failed:
        return CleanableLog(CleaningVerdict.OFFLINE, detail=str(log.failure))
    if not config.compact:
        return CleanableLog(CleaningVerdict.NOT_COMPACTED)
    if config.is_mirror:
        return CleanableLog(CleaningVerdict.MIRROR)
    if log.moving:
        return CleanableLog(CleaningVerdict.MOVING)
    dirty_from = first_dirty_offset(log)
    if not log.size_bytes:
        return CleanableLog(CleaningVerdict.EMPTY, dirty_from, dirty_from)
    upper, limit = _upper_offset(log, dirty_from, high_watermark, now_ms)
    clean = cleanable = 0
    for segment in log.segments:
        if segment.base_offset >= upper:
            break
        following = log.segments.after(segment)
        assert following is not None, "the active segment is never below the upper offset"
        if following.base_offset <= dirty_from:
            clean += segment.size
        else:
            cleanable += segment.size
    found = CleanableLog(CleaningVerdict.ALL_CLEAN, dirty_from, upper, clean, cleanable, limit=limit)
    if not cleanable:
        if dirty_from >= log.log_end_offset:
            return found
        return replace(found, verdict=limit, detail=_detail(log, limit, dirty_from))
    overdue = _overdue_ms(log, dirty_from, now_ms)
    if overdue > 0:
        return replace(found, verdict=CleaningVerdict.LAG_EXCEEDED, detail=f"by {overdue} ms")
    enough = found.dirty_ratio > config.min_cleanable_dirty_ratio
    detail = f"{found.dirty_ratio:.3f} of {config.min_cleanable_dirty_ratio}"
    return replace(
        found, verdict=CleaningVerdict.DIRTY_ENOUGH if enough else CleaningVerdict.NOT_DIRTY_ENOUGH, detail=detail
    )


def first_dirty_offset(log: Log) -> int:
    """The offset from which the log is dirty: the cleaned offset if the log contains it, else the log start offset."""
    if log.log_start_offset <= log.cleaned_offset <= log.log_end_offset:
        return log.cleaned_offset
    return log.log_start_offset


def _upper_offset(log: Log, dirty_from: int, high_watermark: int, now_ms: int) -> tuple[int, CleaningVerdict]:
    """The base offset of the first segment that must not be compacted, and the reason."""
    active = log.segments.active.base_offset
    stable = log.last_stable_offset(high_watermark)
    upper, limit = active, CleaningVerdict.ACTIVE_SEGMENT
    if stable < active:
        holding = log.segments.floor(stable) or log.segments.first
        upper, limit = holding.base_offset, CleaningVerdict.UNSTABLE
    lag = log.config.min_compaction_lag_ms
    if lag > 0:
        young = next((s for s in _dirty(log, dirty_from) if s.max_timestamp > now_ms - lag), None)
        if young is not None and young.base_offset < upper:
            upper, limit = young.base_offset, CleaningVerdict.TOO_YOUNG
    return upper, limit


def _dirty(log: Log, dirty_from: int) -> list[Segment]:
    """The sealed segments with dirty records."""
    return [s for s in log.segments.starting_from(dirty_from) if s is not log.segments.active]


def _overdue_ms(log: Log, dirty_from: int, now_ms: int) -> int:
    """By how many milliseconds max.compaction.lag.ms is exceeded (KIP-354); not positive if it is not exceeded."""
    lag = log.config.max_compaction_lag_ms
    if lag >= LONG_MAX:
        return 0
    stamps = [t for s in _dirty(log, dirty_from) if (t := s.first_timestamp) is not None and t > 0]
    return now_ms - lag - min(stamps) if stamps else 0


def _detail(log: Log, limit: CleaningVerdict, dirty_from: int) -> str:
    if limit is CleaningVerdict.UNSTABLE:
        oldest = next(iter(log.producers.open_transactions), None)
        if oldest is not None:
            return f"producer {oldest.producer_id} has had a transaction open since offset {oldest.txn_first_offset}"
        return "not yet replicated"
    if limit is CleaningVerdict.TOO_YOUNG:
        return f"{log.config.min_compaction_lag_ms} ms"
    return f"offsets {dirty_from} to {log.log_end_offset}"
