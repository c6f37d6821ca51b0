"""Value: record batches of a range, as they were fetched or read from a file."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.client.values import FetchedBatches
from barnabas.spark.source.planner import PartitionRange


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """Record batches, and the offsets of them that are wanted."""

    bounds: PartitionRange
    batches: FetchedBatches
    check_crcs: bool
