"""The values of metrics that clients have pushed, and their limits."""

from __future__ import annotations

import random
from uuid import UUID

from barnabas.core.clock import SystemClock
from barnabas.server.broker.client_metrics.instances import ClientInstance
from barnabas.server.broker.client_metrics.otlp import MetricPoint
from barnabas.server.broker.client_metrics.shares import Bounds
from barnabas.server.broker.client_metrics.store import NAMES_LENGTH_MAX, ClientMetrics
from barnabas.server.broker.client_metrics.subscriptions import ClientAttributes, WantedMetrics


def test_a_value_with_long_names_is_not_kept() -> None:
    metrics = ClientMetrics(SystemClock(), random.Random(1))
    instance = ClientInstance(UUID(int=1), ClientAttributes(), WantedMetrics(("",)), 1)
    long = "x" * NAMES_LENGTH_MAX
    points = [MetricPoint(long, 1.0), MetricPoint("m", 2.0, (("a", long),)), MetricPoint(long + "x", 3.0)]
    metrics.add(instance, points)
    assert metrics.left_out == 2


def pushed(metrics: ClientMetrics, number: int, attributes: ClientAttributes, count: int) -> int:
    """The values that were kept of a new client's push."""
    before = metrics.left_out
    instance = ClientInstance(UUID(int=number), attributes, WantedMetrics(("m.",)), 1)
    metrics.add(instance, [MetricPoint(f"m.{index}", 1.0) for index in range(count)])
    return count - (metrics.left_out - before)


def test_invented_clients_of_one_address_or_principal_leave_room_for_others() -> None:
    metrics = ClientMetrics(SystemClock(), random.Random(1), Bounds(total=60, of_principal=40, of_address=20))

    def client(principal: str, address: str) -> ClientAttributes:
        return ClientAttributes(principal=principal, client_source_address=address)

    hostile = client("User:eve", "10.0.0.1")
    assert [pushed(metrics, number, hostile, 8) for number in range(4)] == [8, 8, 4, 0]
    assert pushed(metrics, 10, client("User:bob", "10.0.0.1"), 8) == 0
    assert pushed(metrics, 11, client("User:eve", "2001:db8::1"), 15) == 15
    assert pushed(metrics, 12, client("User:eve", "2001:db8::2"), 15) == 5  # the same network
    assert pushed(metrics, 13, client("User:alice", "10.0.0.3"), 15) == 15
    assert pushed(metrics, 14, client("User:carol", "10.0.0.4"), 15) == 5  # the total
    metrics.add(ClientInstance(UUID(int=0), hostile, WantedMetrics(("m.",)), 1, is_terminating=True), [])
    assert pushed(metrics, 15, client("User:bob", "10.0.0.1"), 10) == 8


def test_only_metrics_of_the_subscription_are_kept() -> None:
    metrics = ClientMetrics(SystemClock(), random.Random(1))
    assert pushed(metrics, 1, ClientAttributes(), 2) == 2
    other = ClientInstance(UUID(int=2), ClientAttributes(), WantedMetrics(("n.",)), 1)
    metrics.add(other, [MetricPoint("m.1", 1.0)])
    assert metrics.left_out == 1
