"""The settings that throttle moves of replicas: set, changed, and removed when nothing needs them any more."""

from __future__ import annotations

import pytest

from barnabas.cli.cluster_moves import drain
from barnabas.core.ids import TopicPartition
from tests.unit.cli.moving_cluster import MovingCluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MovingCluster:
    cluster = MovingCluster([1, 2, 3, 4, 5], {"t": [(1, 2), (2, 3)], "u": [(3, 5)]})
    cluster.use(monkeypatch)
    return cluster


def lists(topic: str, sending: str, taking: str) -> dict[tuple[str, str], str]:
    return {(f"topic {topic}", LEADERS): sending, (f"topic {topic}", FOLLOWERS): taking}


def rates(bytes_per_second: int, *brokers: int) -> dict[tuple[str, str], str]:
    return {(f"broker {broker}", name): str(bytes_per_second) for broker in brokers for name in RATES}


def test_old_replicas_send_and_new_ones_take(cluster: MovingCluster) -> None:
    drain(1, throttle=1000, wait=False)
    assert cluster.under_way[T0].target == (2, 4)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(1000, 1, 2, 4)


def test_another_rate_while_it_moves_throttles_both_sides(cluster: MovingCluster) -> None:
    drain(1, throttle=1000, wait=False)
    drain(1, throttle=5000, wait=False)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(5000, 1, 2, 4)


def test_a_second_move_keeps_the_first_one_throttled(cluster: MovingCluster) -> None:
    drain(1, throttle=1000, wait=False)
    cluster.up.remove(1)
    drain(3, throttle=5000, wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (2, 4), T1: (2, 4), U0: (5, 2)}
    first_and_second = lists("t", "0:1,0:2,1:2,1:3", "0:4,1:4") | lists("u", "0:3,0:5", "0:2")
    assert cluster.configs == first_and_second | rates(5000, 1, 2, 3, 4, 5)


def test_a_broker_that_is_forgotten_has_no_rate(cluster: MovingCluster) -> None:
    cluster.up.remove(1)
    cluster.registered.remove(1)
    drain(1, throttle=1000, wait=False)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(1000, 2, 4)
