"""Replication throttles of reassignments: setting, changing and removing them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from barnabas.cli.cluster.moves import drain, moves
from barnabas.cli.kafka.cluster import reassign_partitions
from barnabas.cli.kafka.cluster.reassign_partitions import build_parser
from barnabas.core.errors import KafkaError
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


def test_throttle_lists_old_replicas_as_leaders_and_new_ones_as_followers(cluster: MovingCluster) -> None:
    drain([1], throttle=1000, wait=False)
    assert cluster.under_way[T0].target == (2, 4)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(1000, 1, 2, 4)


def test_a_new_rate_during_a_reassignment_applies_to_leaders_and_followers(cluster: MovingCluster) -> None:
    drain([1], throttle=1000, wait=False)
    drain([1], throttle=5000, wait=False)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(5000, 1, 2, 4)


def test_a_second_reassignment_keeps_the_first_one_throttled(cluster: MovingCluster) -> None:
    drain([1], throttle=1000, wait=False)
    cluster.up.remove(1)
    drain([3], throttle=5000, wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (2, 4), T1: (2, 4), U0: (5, 2)}
    first_and_second = lists("t", "0:1,0:2,1:2,1:3", "0:4,1:4") | lists("u", "0:3,0:5", "0:2")
    assert cluster.configs == first_and_second | rates(5000, 1, 2, 3, 4, 5)


def test_finishing_one_reassignment_keeps_the_throttle_of_another(cluster: MovingCluster) -> None:
    drain([1], throttle=1000, wait=False)
    cluster.up.remove(1)
    cluster.on_list = lambda: cluster.finish(*cluster.under_way.keys() & {T1, U0})
    drain([3], throttle=5000)
    assert cluster.replicas[T1] == (2, 4)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(5000, 1, 2, 4)


def test_rates_of_brokers_that_are_down_are_removed(cluster: MovingCluster) -> None:
    cluster.up.remove(1)
    cluster.configs = rates(7, 5)  # left by an earlier reassignment
    cluster.on_list = cluster.finish_all
    drain([1], throttle=1000)
    assert (cluster.replicas[T0], cluster.configs) == ((2, 4), {})


def twin(cluster: MovingCluster, plan: Path, action: str, *flags: str) -> None:
    options = build_parser().parse_args(
        ["--bootstrap-server", "x", f"--{action}", "--reassignment-json-file", str(plan), *flags]
    )
    asyncio.run(getattr(reassign_partitions, f"_{action}")(cluster, options))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Reassign t-0 from broker 1 to broker 4."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2]}]}))
    return path


def test_verify_removes_the_throttle_after_completion(
    cluster: MovingCluster, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_cancel_keeps_the_throttle_that_other_reassignments_need(cluster: MovingCluster, plan: Path) -> None:
    twin(cluster, plan, "execute", "--throttle", "1000")
    drain([3], throttle=1000, wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2), T1: (2, 1), U0: (5, 1)}
    twin(cluster, plan, "cancel", "--preserve-throttles")
    twin(cluster, plan, "cancel")
    assert cluster.configs == lists("t", "1:2,1:3", "1:1") | lists("u", "0:3,0:5", "0:1") | rates(1000, 1, 2, 3, 5)


def test_rates_of_an_unregistered_broker_are_skipped(cluster: MovingCluster) -> None:
    cluster.up.remove(1)
    cluster.registered.remove(1)
    drain([1], throttle=1000, wait=False)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(1000, 2, 4)


REMOVER = "`barnabas cluster moves`, when no reassignment is under way, removes it"


def test_a_rejected_reassignment_restores_the_throttle(cluster: MovingCluster) -> None:
    drain([1], throttle=1000, wait=False)
    before = dict(cluster.configs)
    cluster.refused = {T1, U0}
    with pytest.raises(KafkaError):
        drain([3], throttle=5000)
    assert cluster.configs == before


def test_restoring_removes_only_new_rates_of_brokers_that_are_down(cluster: MovingCluster) -> None:
    drain([1], throttle=1000, wait=False)
    cluster.up -= {1, 3}
    cluster.refused = {T1, U0}
    with pytest.raises(KafkaError):
        drain([3], throttle=5000)
    assert cluster.configs == lists("t", "0:1,0:2", "0:4") | rates(1000, 2, 4) | rates(5000, 1)  # 1 could not be asked


def test_a_started_reassignment_stays_throttled_if_another_is_rejected(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refused = {U0}
    with pytest.raises(KafkaError):
        drain([3], throttle=1000)
    assert cluster.under_way.keys() == {T1}
    assert cluster.configs == lists("t", "1:2,1:3", "1:4") | rates(1000, 2, 3, 4)
    assert capsys.readouterr().err == f"1 of 2 moves have begun and keep the throttle; {REMOVER}\n"


@pytest.mark.parametrize("taken", [False, True])
def test_ctrl_c_during_the_request_restores_the_throttle(
    cluster: MovingCluster, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    async def interrupted(targets: dict[TopicPartition, tuple[int, ...]]) -> None:
        for tp, target in targets.items() if taken else ():
            cluster._move(tp, target)
        raise asyncio.CancelledError

    monkeypatch.setattr(cluster, "alter_partition_reassignments", interrupted)
    with pytest.raises(asyncio.CancelledError):
        drain([1], throttle=1000)
    throttled = lists("t", "0:1,0:2", "0:4") | rates(1000, 1, 2, 4)
    assert cluster.configs == (throttled if taken else {})


def test_ctrl_c_while_waiting_names_the_command_that_removes_the_throttle(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        if cluster.under_way:
            raise asyncio.CancelledError

    cluster.on_list = interrupt
    with pytest.raises(asyncio.CancelledError):
        drain([1], throttle=1000)
    assert capsys.readouterr().err == (
        f"not waiting any more: the reassignments continue, and the throttle remains set; {REMOVER}\n"
    )


def test_moves_removes_the_throttle_if_no_reassignment_is_under_way(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    drain([1], throttle=1000, wait=False)
    assert capsys.readouterr().err.splitlines()[0] == f"the throttle remains set; {REMOVER}"
    throttled = dict(cluster.configs)
    moves()
    assert cluster.configs == throttled
    cluster.finish_all()
    moves(preserve_throttles=True)
    assert cluster.configs == throttled
    cluster.up.remove(1)
    capsys.readouterr()
    moves()
    assert cluster.configs == {}
    assert capsys.readouterr().err == "throttle removed from t; brokers 1, 2, 3, 4, 5\n0 moves under way\n"


def test_moves_keeps_a_wildcard_throttle_set_by_an_administrator(cluster: MovingCluster) -> None:
    cluster.configs = lists("u", "*", "*") | rates(7, 1, 2)
    by_hand = dict(cluster.configs)
    moves()
    assert cluster.configs == by_hand


def test_cancel_removes_the_throttle_with_and_without_reassignments(cluster: MovingCluster) -> None:
    drain([1], throttle=1000, wait=False)
    cluster.up.remove(1)
    moves(cancel=True)
    assert (cluster.under_way, cluster.configs) == ({}, {})
    cluster.configs = lists("t", "0:1,0:2", "") | rates(7, 1, 2, 5)
    moves(cancel=True)
    assert cluster.configs == {}


def test_a_partly_rejected_cancel_keeps_the_throttle_of_the_rest(cluster: MovingCluster) -> None:
    drain([3], throttle=1000, wait=False)
    cluster.refused = {U0}
    with pytest.raises(KafkaError):
        moves(cancel=True)
    assert cluster.configs == lists("u", "0:3,0:5", "0:1") | rates(1000, 1, 3, 5)


def test_kafka_reassign_partitions_restores_the_throttle_of_a_rejected_plan(cluster: MovingCluster, plan: Path) -> None:
    cluster.refused = {T0}
    with pytest.raises(KafkaError):
        twin(cluster, plan, "execute", "--throttle", "1000")
    assert cluster.configs == {}
