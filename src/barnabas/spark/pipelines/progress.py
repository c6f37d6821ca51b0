"""Machine: what a flow's progress reports say, as one row for people and programs.

Spark reports each micro-batch (StreamingQueryProgress). While a query waits for data, reports come every ten seconds
and have no rows. Offsets of `format("barnabas")` are JSON, {topic: {partition: offset}}: the lag is the distance from
the end of the last micro-batch to the end of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

RATE_WEIGHT: Final = 0.3
"""The weight of the newest micro-batch in the moving average of rows per second."""


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """The row of one flow. None: not known, or without meaning for this flow."""

    rows: int = 0
    """Rows read by this process so far; of a materialized view, the rows that it has."""
    batches: int = 0
    batch_id: int | None = None
    rows_per_second: float | None = None
    lag: int | None = None
    """Offsets in the log that the flow has not read."""
    batch_ms: int | None = None
    watermark: str | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    timestamp: str | None = None


class ProgressMeter:
    """Collects the reports of one flow. `add` may be called with the same report again, or with reports of a query that
    was started again.
    """

    def __init__(self) -> None:
        self.progress = FlowProgress()
        self._seen: tuple[str, int] | None = None

    def add(self, report: Mapping[str, Any]) -> bool:
        """Returns whether the report was new and had rows or a finished micro-batch."""
        identity = (str(report.get("timestamp")), int(report.get("batchId", -1)))
        if identity == self._seen:
            return False
        self._seen = identity
        old = self.progress
        rows = int(report.get("numInputRows") or 0)
        duration = (report.get("durationMs") or {}).get("triggerExecution")
        ran = "addBatch" in (report.get("durationMs") or {})
        states = report.get("stateOperators") or []
        lag = _lag(report.get("sources") or [])
        self.progress = FlowProgress(
            rows=old.rows + rows,
            batches=old.batches + ran,
            batch_id=int(report["batchId"]) if "batchId" in report else old.batch_id,
            rows_per_second=_rate(old.rows_per_second, rows, duration, ran=ran),
            lag=old.lag
            if lag is None
            else lag,  # Spark does not ask for the end of the log when it repeats a micro-batch
            batch_ms=int(duration) if ran and duration is not None else old.batch_ms,
            watermark=(report.get("eventTime") or {}).get("watermark", old.watermark),
            state_rows=sum(int(s.get("numRowsTotal") or 0) for s in states) if states else None,
            state_bytes=sum(int(s.get("memoryUsedBytes") or 0) for s in states) if states else None,
            timestamp=report.get("timestamp"),
        )
        return ran

    def add_computation(self, rows: int, took_ms: int, timestamp: str) -> None:
        """A materialized view has been computed, and has so many rows now."""
        batches = self.progress.batches
        rate = rows * 1_000 / max(1, took_ms)
        self.progress = FlowProgress(rows, batches + 1, batches, rate, batch_ms=took_ms, timestamp=timestamp)


def _rate(old: float | None, rows: int, duration: Any, *, ran: bool) -> float | None:
    """A moving average over micro-batches; 0 when there was nothing to read."""
    if not ran or not duration:
        return 0.0 if old is not None else None
    rate = rows * 1_000 / float(duration)
    return rate if not old else old + RATE_WEIGHT * (rate - old)


def _lag(sources: list[Mapping[str, Any]]) -> int | None:
    """The sum over all sources whose offsets can be subtracted, or None if there is no such source."""
    lags = []
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if latest:
            lags.append(sum(max(0, offset - end.get(tp, 0)) for tp, offset in latest.items()))
    return sum(lags) if lags else None


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return dict(_pairs(value)) if isinstance(value, dict) else {}


def _pairs(value: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], int]]:
    for topic, partitions in value.items():
        if isinstance(partitions, dict) and not topic.startswith("$"):
            for partition, offset in partitions.items():
                if isinstance(offset, int):
                    yield (topic, partition), offset
