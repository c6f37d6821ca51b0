"""`barnabas cluster reassign, drain, moves`, while replicas are already being moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.cli.cluster_moves import drain, reassign
from barnabas.client.admin.reassignments import Reassignment
from barnabas.core.ids import TopicPartition
from tests.unit.cli.moving_cluster import MovingCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TO_FOUR = Reassignment((4, 2, 3, 1), (4,), (1,))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MovingCluster:
    """t-0 of 1, 2 and 3 is on its way to 4, 2 and 3."""
    cluster = MovingCluster([1, 2, 3, 4, 5], {"t": [(1, 2, 3), (2, 3, 1)]})
    cluster.use(monkeypatch)
    cluster._move(T0, (4, 2, 3))
    assert cluster.under_way == {T0: TO_FOUR}
    return cluster


def test_a_broker_drained_again_keeps_the_number_of_replicas(cluster: MovingCluster) -> None:
    drain(1, wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2, 3), T1: (2, 3, 5)}
    assert cluster.under_way[T0] == TO_FOUR


def test_a_broker_drained_again_is_waited_for(cluster: MovingCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster._move(T1, (2, 3, 5))
    listed = iter([False, False, True])
    cluster.on_list = lambda: cluster.finish_all() if next(listed, False) else None
    drain(1)
    assert cluster.replicas == {T0: (4, 2, 3), T1: (2, 3, 5)}
    assert "2 partition(s) moved" in capsys.readouterr().err


def test_the_broker_to_which_a_move_leads_can_be_drained(cluster: MovingCluster) -> None:
    cluster.up.remove(1)
    drain(4, wait=False)
    assert cluster.under_way == {T0: Reassignment((2, 3, 5, 1), (5,), (1,))}


def test_brokers_that_hold_what_leaves_them_are_not_needed(cluster: MovingCluster) -> None:
    cluster.up = {2, 3, 4}
    drain(1, wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2, 3), T1: (2, 3, 4)}


def test_spreading_counts_what_moves_where_it_will_be(cluster: MovingCluster) -> None:
    reassign(to="2,3,4", wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2, 3), T1: (2, 3, 4)}


@pytest.mark.parametrize("target", [(1, 2, 3), (4, 2, 3), (4, 2, 3, 1)])
def test_a_plan_for_what_moves_is_carried_out(cluster: MovingCluster, tmp_path: Path, target: tuple[int, ...]) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": target}]}))
    reassign(file=plan, wait=False)
    cluster.finish_all()
    assert cluster.replicas[T0] == target


def test_a_move_that_ends_while_the_topics_are_described(cluster: MovingCluster) -> None:
    listed = iter([False, True])

    def end() -> None:  # the topics were described before it ended
        if next(listed, False):
            del cluster.under_way[T0]

    cluster.on_list = end
    drain(1, wait=False)
    assert cluster.under_way == {T1: Reassignment((2, 3, 5, 1), (5,), (1,))}
