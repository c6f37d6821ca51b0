"""`barnabas cluster reassign, drain, moves` while reassignments are already under way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.cli.cluster.moves import drain, reassign
from barnabas.client.admin.reassignments import Reassignment
from barnabas.core.ids import TopicPartition
from tests.unit.cli.moving_cluster import MovingCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TO_FOUR = Reassignment((4, 2, 3, 1), (4,), (1,))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MovingCluster:
    """A cluster in which t-0 is being reassigned from brokers 1, 2, 3 to 4, 2, 3."""
    cluster = MovingCluster([1, 2, 3, 4, 5], {"t": [(1, 2, 3), (2, 3, 1)]})
    cluster.use(monkeypatch)
    cluster._move(T0, (4, 2, 3))
    assert cluster.under_way == {T0: TO_FOUR}
    return cluster


def test_draining_a_broker_twice_keeps_the_replication_factor(cluster: MovingCluster) -> None:
    drain([1], wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2, 3), T1: (2, 3, 5)}
    assert cluster.under_way[T0] == TO_FOUR


def test_brokers_that_are_drained_together_get_no_replicas_of_one_another(cluster: MovingCluster) -> None:
    drain([1, 4], wait=False)
    assert all({1, 4}.isdisjoint(move.target) for move in cluster.under_way.values())


def test_draining_a_broker_again_waits_for_the_first_drain(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster._move(T1, (2, 3, 5))
    listed = iter([False, False, True])
    cluster.on_list = lambda: cluster.finish_all() if next(listed, False) else None
    drain([1])
    assert cluster.replicas == {T0: (4, 2, 3), T1: (2, 3, 5)}
    assert "2 partitions moved" in capsys.readouterr().err


def test_a_reassignments_target_broker_can_be_drained(cluster: MovingCluster) -> None:
    cluster.up.remove(1)
    drain([4], wait=False)
    assert cluster.under_way == {T0: Reassignment((2, 3, 5, 1), (5,), (1,))}


def test_plan_ignores_replicas_that_are_leaving_a_broker(cluster: MovingCluster) -> None:
    cluster.up = {2, 3, 4}
    drain([1], wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2, 3), T1: (2, 3, 4)}


def test_plan_counts_moving_replicas_at_their_target(cluster: MovingCluster) -> None:
    reassign(to="2,3,4", wait=False)
    assert {tp: move.target for tp, move in cluster.under_way.items()} == {T0: (4, 2, 3), T1: (2, 3, 4)}


@pytest.mark.parametrize("target", [(1, 2, 3), (4, 2, 3), (4, 2, 3, 1)])
def test_a_plan_for_partitions_already_moving_is_submitted(
    cluster: MovingCluster, tmp_path: Path, target: tuple[int, ...]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": target}]}))
    reassign(file=plan, wait=False)
    cluster.finish_all()
    assert cluster.replicas[T0] == target


def test_placement_has_the_target_of_a_reassignment_that_ends_during_the_read(cluster: MovingCluster) -> None:
    listed = iter([False, True])

    def end() -> None:  # the topics were described before it ended
        if next(listed, False):
            del cluster.under_way[T0]

    cluster.on_list = end
    drain([1], wait=False)
    assert cluster.under_way == {T1: Reassignment((2, 3, 5, 1), (5,), (1,))}
