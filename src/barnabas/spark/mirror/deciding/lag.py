"""Machine: how far the copies are behind: in records, in bytes and in seconds, for each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.ports import CopiedRange, CopiedRanges


@dataclass(frozen=True, slots=True)
class MirrorLag:
    """The lag of one source partition. Offsets of markers and of compacted records count as records."""

    partition: TopicPartition
    position: int
    """The next upstream offset to copy."""
    source_end: int
    records: int
    bytes: int
    """Estimated from the sizes of the records that were copied."""
    seconds: float
    """The time since the newest copied record was written, or since the copier has known of records that it has not
    copied; 0 if nothing is behind."""
    copied: int = 0
    """Records that this process has copied."""
    lost: int = 0
    """Offsets that were deleted in the source before they were copied."""


@dataclass(slots=True)
class _Meter:
    position: int = 0
    end: int = 0
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
        meter.end = max(meter.end, end)
        if meter.position >= meter.end:
            meter.behind_since_ms = -1
        elif meter.behind_since_ms < 0:
            meter.behind_since_ms = now_ms

    def lags(self, now_ms: int) -> list[MirrorLag]:
        return [self._lag(partition, self._meters[partition], now_ms) for partition in sorted(self._meters)]

    @staticmethod
    def _lag(partition: TopicPartition, meter: _Meter, now_ms: int) -> MirrorLag:
        behind = max(0, meter.end - meter.position)
        size = round(behind * meter.bytes / meter.copied) if meter.copied else 0
        since = meter.newest_ms if meter.newest_ms >= 0 else meter.behind_since_ms
        seconds = max(0.0, (now_ms - since) / 1000) if behind and since >= 0 else 0.0
        return MirrorLag(partition, meter.position, meter.end, behind, size, seconds, meter.copied, meter.lost)


def totals(lags: Sequence[MirrorLag]) -> tuple[int, int, float]:
    """Records, bytes, and the largest lag in seconds."""
    return (
        sum(lag.records for lag in lags),
        sum(lag.bytes for lag in lags),
        max((lag.seconds for lag in lags), default=0),
    )
