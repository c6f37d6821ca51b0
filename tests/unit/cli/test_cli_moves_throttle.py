"""The settings that throttle moves of replicas: set, changed, and removed when nothing needs them any more."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from barnabas.cli.cluster_moves import drain
from barnabas.cli.kafka import reassign_partitions
from barnabas.cli.kafka.reassign_partitions import build_parser
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


def test_what_a_move_under_way_needs_stays_when_a_second_one_is_done(cluster: MovingCluster) -> None:
    drain(1, throttle=1000, wait=False)
    cluster.up.remove(1)
    cluster.on_list = lambda: cluster.finish(*cluster.under_way.keys() & {T1, U0})
    drain(3, throttle=5000)
    assert cluster.replicas[T1] == (2, 4)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(5000, 1, 2, 4)


def test_full_speed_also_for_brokers_that_are_down(cluster: MovingCluster) -> None:
    cluster.up.remove(1)
    cluster.configs = rates(7, 5)  # of a move of long ago
    cluster.on_list = cluster.finish_all
    drain(1, throttle=1000)
    assert (cluster.replicas[T0], cluster.configs) == ((2, 4), {})


def twin(cluster: MovingCluster, plan: Path, action: str, *flags: str) -> None:
    options = build_parser().parse_args(
        ["--bootstrap-server", "x", f"--{action}", "--reassignment-json-file", str(plan), *flags]
    )
    asyncio.run(getattr(reassign_partitions, f"_{action}")(cluster, options))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """t-0 goes from 1 to 4."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2]}]}))
    return path


def test_verify_and_its_reminder(cluster: MovingCluster, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin(cluster, plan, "execute", "--throttle", "1000")
    twin(cluster, plan, "execute", "--throttle", "5000", "--additional")
    throttled = lists("t", "0:1,0:2", "0:4") | rates(5000, 1, 2, 4)
    assert cluster.configs == throttled
    rollback = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [json.loads(line)["partitions"][0]["replicas"] for line in rollback] == [[1, 2], [2, 1]]
    twin(cluster, plan, "verify")
    cluster.finish_all()
    twin(cluster, plan, "verify", "--preserve-throttles")
    assert cluster.configs == throttled
    cluster.up -= {1, 4}
    capsys.readouterr()
    twin(cluster, plan, "verify")
    assert cluster.configs == {}
    assert capsys.readouterr().out.splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is completed.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3,4,5",
        "Clearing topic-level throttles on topic t",
    ]


def test_cancel_leaves_what_other_moves_need(cluster: MovingCluster, plan: Path) -> None:
    twin(cluster, plan, "execute", "--throttle", "1000")
    drain(3, throttle=1000, wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2), T1: (2, 1), U0: (5, 1)}
    twin(cluster, plan, "cancel", "--preserve-throttles")
    twin(cluster, plan, "cancel")
    assert cluster.configs == lists("t", "1:2,1:3", "1:1") | lists("u", "0:3,0:5", "0:1") | rates(1000, 1, 2, 3, 5)


def test_a_broker_that_is_forgotten_has_no_rate(cluster: MovingCluster) -> None:
    cluster.up.remove(1)
    cluster.registered.remove(1)
    drain(1, throttle=1000, wait=False)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(1000, 2, 4)
