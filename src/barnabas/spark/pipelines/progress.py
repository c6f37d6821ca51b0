"""Machine: what a flow's progress reports say, as one row for people and programs.

Spark reports each micro-batch (StreamingQueryProgress). While a query waits for data, reports come every ten seconds
and have no rows. The lag is the distance from the end of the last micro-batch to the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.core.known_sums import sum_of_known
from barnabas.spark.source.lag import report_lags, report_topics, with_lag

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
        self.sources: list[dict[str, Any]] = []
        """The description and the metrics of each source, from the last report of a micro-batch."""
        self.topics: frozenset[str] = frozenset()
        """The topics that the positions in the last report name."""
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
        self.topics |= frozenset().union(*map(report_topics, report.get("sources") or []))
        if ran or lag is not None:
            named = with_lag(report)["sources"]
            self.sources = [{"description": s.get("description"), "metrics": s.get("metrics") or {}} for s in named]
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


def reads_topics(flow: Mapping[str, Any]) -> bool:
    """Whether a flow in the file of a run reads topics, so that it has a lag. Older files do not say."""
    topics = flow.get("topics")
    return flow.get("type") == "stream" if topics is None else bool(topics) and flow.get("type") == "stream"


def total_lag(flows: Iterable[Mapping[str, Any]]) -> int | None:
    """The lag of all flows in the file of a run; None if it is unknown, or no flow reads topics."""
    return sum_of_known([flow.get("lag") for flow in flows if reads_topics(flow)])


def _rate(old: float | None, rows: int, duration: Any, *, ran: bool) -> float | None:
    """A moving average over micro-batches; 0 when there was nothing to read."""
    if not ran or not duration:
        return 0.0 if old is not None else None
    rate = rows * 1_000 / float(duration)
    return rate if not old else old + RATE_WEIGHT * (rate - old)


def _lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """The sum over all sources that read topics, or None if there is no such source, or the lag of one is unknown."""
    return sum_of_known(report_lags(sources))
