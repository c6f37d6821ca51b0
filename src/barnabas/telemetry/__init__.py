"""Counters, gauges, histograms, a structured log, and their Prometheus text. Pure: nothing here opens a socket."""

from __future__ import annotations

from barnabas.telemetry.log import get_logger
from barnabas.telemetry.metrics import Counter, Gauge, Histogram, Metrics
from barnabas.telemetry.prometheus import render

__all__ = ["Counter", "Gauge", "Histogram", "Metrics", "get_logger", "render"]
