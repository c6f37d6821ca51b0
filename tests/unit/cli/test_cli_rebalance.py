"""What `barnabas cluster rebalance` and `heal` make of a cluster, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from typer.testing import CliRunner

from barnabas.cli.app import build_app
from barnabas.cli.cluster import heal as cluster_heal
from barnabas.cli.cluster.heal import heal
from barnabas.cli.cluster.moves_execution import _parts
from barnabas.cli.cluster.moves_placement import ClusterPlacement
from barnabas.cli.cluster.rebalance_load import BrokerChoice, Disks, ReadCluster, build_load
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.values import ClusterDescription, LogDirDescription
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.balance.values import PartitionLoad, PlannedRole
from tests.unit.cli.moving_cluster import MovingCluster

A, B, C = (TopicPartition(name, 0) for name in ("a", "b", "c"))
FOUND = ReadCluster(
    ClusterPlacement(
        {A: (1, 2), B: (2, 9), C: (1, 2, 3)}, {1: "x", 2: None, 3: None}, {C: Reassignment((1, 2, 3), (3,), (2,))}
    ),
    disks=Disks({A: 10}, {1: 10, 2: 0}, {1: (100, 60)}),
    traffic={A: (5, 7)},
)


def roles(choice: BrokerChoice) -> dict[int, PlannedRole]:
    return {broker: state.role for broker, state in build_load(FOUND, choice).brokers.items()}


def test_a_dead_broker_keeps_its_replicas_unless_it_is_removed() -> None:
    takes, excluded, leaves = PlannedRole.TAKES_PART, PlannedRole.EXCLUDED, PlannedRole.LEAVES
    assert roles(BrokerChoice()) == {1: takes, 2: takes, 3: takes, 9: excluded}
    assert roles(BrokerChoice(removed=frozenset({9}))) == {1: takes, 2: takes, 3: takes, 9: leaves}


def test_only_added_brokers_get_replicas() -> None:
    choice = BrokerChoice(added=frozenset({3}), removed=frozenset({9}), excluded=frozenset({2}))
    assert roles(choice) == {
        1: PlannedRole.GIVES,
        2: PlannedRole.EXCLUDED,
        3: PlannedRole.TAKES_PART,
        9: PlannedRole.LEAVES,
    }


def test_partitions_have_their_load_and_those_that_move_already_are_fixed_at_their_targets() -> None:
    assert build_load(FOUND, BrokerChoice(excluded_topics="b.*")).partitions == {
        A: PartitionLoad((1, 2), 10, 5, 7),
        B: PartitionLoad((2, 9), is_fixed=True),
        C: PartitionLoad((1, 3), is_fixed=True),
    }


def test_only_partitions_of_a_removed_broker_move() -> None:
    partitions = build_load(FOUND, BrokerChoice(removed=frozenset({9}))).partitions
    assert {tp for tp, load in partitions.items() if not load.is_fixed} == {B}


def test_a_share_of_the_disk_stays_free() -> None:
    brokers = build_load(FOUND, BrokerChoice(disk_percent=80)).brokers
    assert (brokers[1].bytes_max, brokers[2].bytes_max) == (50, None)  # 10 used, 60 free, of which 20 stay free


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (BrokerChoice(added=frozenset({9})), r"--add-broker 9: the cluster has the brokers \[1, 2, 3\]\."),
        (BrokerChoice(removed=frozenset({7})), r"--remove-broker 7: the cluster has the brokers \[1, 2, 3, 9\]\."),
        (
            BrokerChoice(removed=frozenset({2}), excluded=frozenset({2})),
            "Broker 2 can only be added, removed or excluded",
        ),
    ],
)
def test_impossible_choices_are_refused(choice: BrokerChoice, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        build_load(FOUND, choice)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("rebalance --goals speed", "speed: the goals are replicas, disk, network-in, network-out, leaders."),
        ("rebalance --add-broker four", "--add-broker four: write the ids of brokers"),
        ("rebalance --exclude-topics (", "this is no regular expression"),
        ("heal --watch --json", "--watch does not end"),
        ("heal --after soon", "'soon' is not a duration"),
    ],
)
def test_wrong_usage_exits_with_code_2_before_a_broker_is_asked(line: str, text: str) -> None:
    shown = CliRunner().invoke(build_app(), ["cluster", *line.split()], env={"COLUMNS": "300", "TERM": "dumb"})
    assert shown.exit_code == 2
    assert text in " ".join(shown.output.replace("│", " ").split())


def test_no_broker_gets_more_replicas_at_once_than_allowed() -> None:
    planned = {TopicPartition("t", n): (1, 4) for n in range(3)} | {TopicPartition("u", 0): (1, 5)}
    originals = dict.fromkeys(planned, (1, 2))
    parts = [[str(tp) for tp in part] for part in _parts(originals, planned, 2)]
    assert parts == [["t-0", "t-1", "u-0"], ["t-2"]]
    assert [len(part) for part in _parts(originals, planned, None)] == [4]


class HealedCluster(MovingCluster):
    """Reassignments end at once, and brokers report no disks. `on_look` is called before the cluster is described."""

    on_look: Callable[[], None] = staticmethod(lambda: None)

    async def describe_cluster(self) -> ClusterDescription:
        self.on_look()
        return await super().describe_cluster()

    async def alter_partition_reassignments(self, targets: Any) -> Any:
        results = await super().alter_partition_reassignments(targets)
        self.finish_all()
        return results

    async def describe_log_dirs(
        self, brokers: Iterable[int], *, timeout_ms: float
    ) -> dict[int, dict[str, LogDirDescription]]:
        return {broker: {} for broker in brokers}

    async def elect_leaders(self, partitions: object, kind: object) -> dict[TopicPartition, None]:
        return {}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> HealedCluster:
    cluster = HealedCluster([1, 2, 3, 4], {"t": [(1, 2, 3), (2, 3, 1)]})
    cluster.use(monkeypatch, cluster_heal)
    return cluster


def test_a_dry_run_changes_nothing(cluster: HealedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.up.remove(3)
    heal()
    assert cluster.replicas == {TopicPartition("t", 0): (1, 2, 3), TopicPartition("t", 1): (2, 3, 1)}
    said = capsys.readouterr()
    assert "2 moves, 0 B to be copied; --execute carries out the plan" in said.err
    assert "broker 3 is dead; healing begins in 1800 s unless it comes back" in said.err


def test_a_dead_broker_is_replaced(cluster: HealedCluster) -> None:
    cluster.up.remove(3)
    heal(execute=True, after="PT0S")
    assert cluster.replicas == {TopicPartition("t", 0): (1, 2, 4), TopicPartition("t", 1): (2, 1, 4)}


def test_nothing_dead_is_nothing_to_do(cluster: HealedCluster) -> None:
    before = dict(cluster.replicas)
    heal(execute=True, after="PT0S")
    assert cluster.replicas == before


def test_many_dead_brokers_are_an_error(cluster: HealedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(cluster.replicas)
    cluster.up -= {2, 3}
    with pytest.raises(SystemExit) as ended:
        heal(execute=True, after="PT0S")
    assert (ended.value.code, cluster.replicas) == (1, before)
    assert "2 brokers are dead at once (2, 3)" in capsys.readouterr().err


class EndOfWatchError(Exception):
    """Ends a watch, which otherwise never ends."""


def watch(cluster: HealedCluster, monkeypatch: pytest.MonkeyPatch, *looks: Callable[[], None], execute: bool) -> None:
    """Watches the cluster, and calls one of the functions before each look."""
    left = iter(looks)

    def on_look() -> None:
        step = next(left, None)
        if step is None:
            raise EndOfWatchError
        step()

    cluster.on_look = on_look
    monkeypatch.setattr(cluster_heal, "_INTERVAL_S", 0.0)
    with pytest.raises(EndOfWatchError):
        heal(watch=True, execute=execute, after="PT0S")


def nothing() -> None:
    pass


def test_a_watch_heals_whenever_a_broker_dies(cluster: HealedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(cluster, monkeypatch, nothing, lambda: cluster.up.remove(3), nothing, nothing, execute=True)
    assert cluster.replicas == {TopicPartition("t", 0): (1, 2, 4), TopicPartition("t", 1): (2, 1, 4)}


def test_a_watch_without_execute_only_says_what_it_would_do_and_says_it_once(
    cluster: HealedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(cluster.replicas)
    watch(cluster, monkeypatch, lambda: cluster.up.remove(3), nothing, nothing, execute=False)
    assert cluster.replicas == before
    assert capsys.readouterr().err == "would heal now: 2 moves, 0 B to be copied; --execute carries out the plan\n"


def test_a_watch_survives_a_cluster_that_does_not_answer(
    cluster: HealedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no controller")

    watch(cluster, monkeypatch, fail, lambda: cluster.up.remove(3), nothing, execute=True)
    assert "the cluster cannot be observed: " in capsys.readouterr().err
    assert 3 not in {broker for replicas in cluster.replicas.values() for broker in replicas}
