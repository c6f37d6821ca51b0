"""Machine: how far a query is behind the log, from its position and the log's offsets.

Spark shows a JVM class name as the description of a source written in Python, and never asks such a source for its
metrics. Both are computed here instead, from a query's progress report or from its checkpoint. The metrics have the
names of Spark's own Kafka connector (`minOffsetsBehindLatest`, ...); `estimatedTotalBytesBehindLatest` is the name that
Databricks uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.source.positions import Offsets, Position

_PYTHON_STREAM: Final = "PythonMicroBatchStream"
_OFFSET_LOG_VERSION: Final = "v1"
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """`position` is the next offset that the query reads; None if the query has not begun with this partition."""

    position: int | None
    latest: int
    behind: int


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far one source of a query is behind the log. `bytes_behind` is None if the sizes of records are unknown."""

    partitions: Mapping[TopicPartition, PartitionLag]
    lost_records: int = 0
    bytes_behind: int | None = None

    @property
    def description(self) -> str:
        return describe(self.partitions)

    @property
    def offsets_behind(self) -> int | None:
        """The sum over all partitions; None (unknown) without partitions, since the topic does not exist yet."""
        if not self.partitions:
            return None
        return sum(lag.behind for lag in self.partitions.values())

    def metrics(self) -> dict[str, str]:
        """The metrics that Spark's connector reports for a source; empty without partitions."""
        behind = [lag.behind for lag in self.partitions.values()]
        if not behind:
            return {}
        found = {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
        }
        if self.bytes_behind is not None:
            found["estimatedTotalBytesBehindLatest"] = str(self.bytes_behind)
        return found


def describe(partitions: Mapping[TopicPartition, Any]) -> str:
    """The name of a source: `barnabas[orders, payments]`."""
    return f"barnabas[{', '.join(sorted({tp.topic for tp in partitions}))}]"


def source_lag(
    position: Position | None,
    latest: Offsets,
    earliest: Offsets | None = None,
    bytes_per_offset: Mapping[TopicPartition, float] | None = None,
) -> SourceLag:
    """The lag of a source at `position`, or before its first micro-batch (None).

    A partition without a position counts from its log start offset (`earliest`). With `bytes_per_offset`, the bytes
    are estimated.
    """
    known = {} if position is None else position.offsets
    starts = earliest or {}
    partitions = {}
    for tp in sorted(latest):
        begin = known.get(tp, starts.get(tp, 0))
        partitions[tp] = PartitionLag(known.get(tp), latest[tp], max(0, latest[tp] - max(begin, starts.get(tp, 0))))
    size = None
    if bytes_per_offset is not None:
        size = round(sum(lag.behind * bytes_per_offset.get(tp, 0.0) for tp, lag in partitions.items()))
    return SourceLag(partitions, 0 if position is None else position.lost_records, size)


def with_lag(progress: Mapping[str, Any]) -> dict[str, Any]:
    """A progress report of Spark (`StreamingQueryProgress.json`, parsed) in which each source of this format has its
    topics as its description, and its metrics. Other sources stay as they are.
    """
    return {**progress, "sources": [_source_with_lag(source) for source in progress.get("sources", ())]}


def _source_with_lag(source: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(source)
    if _PYTHON_STREAM not in str(source.get("description", "")):
        return found
    end, latest = (_position(source.get(name)) for name in ("endOffset", "latestOffset"))
    if end is None:
        return found  # another source that is written in Python
    found["description"] = describe(end.offsets)
    if latest is not None:
        found["metrics"] = {**source.get("metrics", {}), **source_lag(end, latest.offsets).metrics()}
    if end.lost_records:
        found["metrics"] = {**found.get("metrics", {}), "lostRecords": str(end.lost_records)}
    return found


def report_topics(source: Mapping[str, Any]) -> frozenset[str]:
    """The topics in the position of a source in a progress report; none for a source without positions of topics."""
    end = _position(source.get("endOffset"))
    return frozenset() if end is None else frozenset(tp.topic for tp in end.offsets)


def report_lags(sources: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """The lag in the entry of each source in a progress report that has positions of topics; None (unknown) without the
    end of the log, for which Spark does not ask when it repeats a micro-batch.
    """
    ends = [(source, end) for source in sources if (end := _position(source.get("endOffset"))) is not None]
    latest = [(end, _position(source.get("latestOffset"))) for source, end in ends]
    return [None if last is None else source_lag(end, last.offsets).offsets_behind for end, last in latest]


def _position(offset: Any) -> Position | None:
    """The position that an offset in a progress report stands for; None if the offset is not one of this source."""
    try:
        document = json.loads(offset) if isinstance(offset, str) else offset
        return Position.from_json(document) if isinstance(document, dict) else None
    except ValueError:
        return None


def committed_batch(batches: Sequence[str], commits: Sequence[str]) -> int | None:
    """The newest micro-batch that is complete, from the file names in a checkpoint's `offsets` and `commits`."""
    planned = {int(name) for name in batches if name.isdecimal()}
    done = planned & {int(name) for name in commits if name.isdecimal()}
    return max(done, default=None)


def parse_offset_log(text: str) -> list[Position | None]:
    """The positions in one file of a checkpoint's `offsets`, one for each source of the query: None for a source that
    had no data yet, or that is not of this format. Raises SparkSourceError if the file is not an offset log.
    """
    version, *lines = text.splitlines()
    if version != _OFFSET_LOG_VERSION or not lines:
        raise SparkSourceError(
            f"the checkpoint has an offset log of version {version!r}, but this version of barnabas reads"
            f" {_OFFSET_LOG_VERSION}: give the consumer group of the query (groupId) instead"
        )
    return [None if line == _NO_OFFSET else _position(line) for line in lines[1:]]
