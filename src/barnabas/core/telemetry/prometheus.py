"""Codec: a `Metrics` registry -> the whole page of metrics for Prometheus at once. A node, whose page can be long,
builds it in pieces (`exposition.py`)."""

from __future__ import annotations

from barnabas.core.telemetry.exposition import Exposition, building
from barnabas.core.telemetry.metrics import Metrics
from barnabas.core.telemetry.table import NameFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(metrics: Metrics, names: NameFamily = NameFamily.STRIMZI) -> str:
    """The whole registry as text, families in order of name."""
    page = Exposition(names)
    for _ in building(metrics, page):
        pass
    return page.text()
