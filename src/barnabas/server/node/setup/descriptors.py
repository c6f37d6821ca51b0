"""Shell: the metrics of a node's file descriptors."""

from __future__ import annotations

from barnabas.core.telemetry import Metrics
from barnabas.server.storage.descriptors import RESERVE, DescriptorShares, open_descriptors
from barnabas.server.storage.segments.open_segments import OpenSegments


def measure_descriptors(metrics: Metrics, shares: DescriptorShares, open_segments: OpenSegments) -> None:
    """Register the metrics."""
    metrics.gauge("barnabas_descriptors_open", "Open file descriptors of the process.", open_descriptors)
    metrics.gauge("barnabas_descriptors_limit", "The limit of open file descriptors.", lambda: shares.limit)
    metrics.gauge(
        "barnabas_descriptors_reserve_used",
        "How many times a file was opened with a descriptor of the reserve, because no other was free.",
        lambda: RESERVE.used,
    )
    metrics.gauge(
        "barnabas_descriptors_exhausted",
        "How many times a file could not be opened, because no descriptor was free.",
        lambda: RESERVE.exhausted,
    )
    metrics.gauge("barnabas_log_open_segments", "Log segments with an open file.", lambda: len(open_segments))
    metrics.gauge(
        "barnabas_log_open_segments_limit", "The limit of log segments with an open file.", lambda: shares.segments
    )
    metrics.gauge(
        "barnabas_log_segments_closed",
        "How many times the file of a segment was closed to stay within the limit.",
        lambda: open_segments.closed,
    )
