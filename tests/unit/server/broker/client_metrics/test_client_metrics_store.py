"""The values of metrics that clients have pushed, and their limits."""

from __future__ import annotations

import random
from uuid import UUID

from barnabas.core.clock import SystemClock
from barnabas.server.broker.client_metrics.instances import ClientInstance
from barnabas.server.broker.client_metrics.otlp import MetricPoint
from barnabas.server.broker.client_metrics.store import NAMES_LENGTH_MAX, ClientMetrics
from barnabas.server.broker.client_metrics.subscriptions import ClientAttributes, Wanted


def test_a_value_with_long_names_is_not_kept() -> None:
    metrics = ClientMetrics(SystemClock(), random.Random(1))
    instance = ClientInstance(UUID(int=1), ClientAttributes(), Wanted(), 1)
    long = "x" * NAMES_LENGTH_MAX
    points = [MetricPoint(long, 1.0), MetricPoint("m", 2.0, (("a", long),)), MetricPoint(long + "x", 3.0)]
    metrics.add(instance, points)
    assert metrics.left_out == 2
