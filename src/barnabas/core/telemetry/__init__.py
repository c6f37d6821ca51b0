"""Counters, gauges, histograms, a structured log, and their Prometheus text. This package opens no sockets."""

from __future__ import annotations

from barnabas.core.telemetry.log import get_logger
from barnabas.core.telemetry.metrics import Counter, Gauge, Histogram, Metrics
from barnabas.core.telemetry.prometheus import render

__all__ = ["Counter", "Gauge", "Histogram", "Metrics", "get_logger", "render"]
