"""Machine: how far the copies are behind: in records, in bytes and in seconds, for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.ports import CopiedRange, CopiedRanges


@dataclass(frozen=True, slots=True)
class MirrorLag:
    """The lag of one source partition. Offsets of markers and of compacted records count as records. None is unknown:
    the source has not answered yet, or nothing was copied from which the number could be estimated."""

    partition: TopicPartition
    position: int | None
    """The next upstream offset to copy."""
    source_end: int | None
    records: int | None
    bytes: int | None
    """Estimated from the sizes of the records that were copied."""
    seconds: float | None
    """The time since the newest copied record was written, or since the copier has known of records that it has not
    copied; 0 if nothing is behind."""
    copied: int = 0
    """Records that this process has copied."""
    lost: int = 0
    """Offsets that were deleted in the source before they were copied."""


@dataclass(slots=True)
class _Meter:
    position: int = 0
    end: int | None = None
    copied: int = 0
    bytes: int = 0
    lost: int = 0
    newest_ms: int = -1
    behind_since_ms: int = -1


class LagBoard:
    """The lag of all source partitions of a pair."""

    def __init__(self) -> None:
        self._meters: dict[TopicPartition, _Meter] = {}

    def positions(self) -> dict[TopicPartition, int]:
        return {partition: meter.position for partition, meter in self._meters.items()}

    def started(self, positions: Mapping[TopicPartition, int]) -> None:
        """The positions at which a copier begins, for all partitions that it copies. Others are forgotten."""
        self._meters = {partition: self._meters.get(partition, _Meter()) for partition in positions}
        for partition, position in positions.items():
            self._meters[partition].position = position

    def copied(self, batch: CopiedRanges) -> None:
        for copied in batch.ranges:
            self._copied(copied, batch.committed_ms)

    def _copied(self, copied: CopiedRange, now_ms: int) -> None:
        meter = self._meters.setdefault(copied.partition, _Meter())
        meter.position = copied.next_upstream
        meter.copied += copied.records
        meter.bytes += copied.bytes
        meter.lost += copied.lost
        meter.newest_ms = max(meter.newest_ms, copied.newest_timestamp_ms)
        self._see_end(meter, copied.source_log_end, now_ms)

    def ends_seen(self, ends: Mapping[TopicPartition, int], now_ms: int) -> None:
        """The ends of the source logs now."""
        for partition, end in ends.items():
            if partition in self._meters:
                self._see_end(self._meters[partition], end, now_ms)

    @staticmethod
    def _see_end(meter: _Meter, end: int, now_ms: int) -> None:
        meter.end = end if meter.end is None else max(meter.end, end)
        if meter.position >= meter.end:
            meter.behind_since_ms = -1
        elif meter.behind_since_ms < 0:
            meter.behind_since_ms = now_ms

    def lags(self, now_ms: int) -> list[MirrorLag]:
        return [self._lag(partition, self._meters[partition], now_ms) for partition in sorted(self._meters)]

    @staticmethod
    def _lag(partition: TopicPartition, meter: _Meter, now_ms: int) -> MirrorLag:
        if meter.end is None:
            return MirrorLag(partition, meter.position, None, None, None, None, meter.copied, meter.lost)
        behind = max(0, meter.end - meter.position)
        size = round(behind * meter.bytes / meter.copied) if meter.copied else None if behind else 0
        since = meter.newest_ms if meter.newest_ms >= 0 else meter.behind_since_ms
        seconds = max(0.0, (now_ms - since) / 1000) if behind and since >= 0 else 0.0
        return MirrorLag(partition, meter.position, meter.end, behind, size, seconds, meter.copied, meter.lost)
