"""Brokers of Apache Kafka and Barnabas with two log directories each, in one cluster (KIP-858).

A broker reports to the controller of the other program in which directory each replica is, and which directories have
failed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.values import TopicPartitionReplica
from tests.interop.mixed_cluster import MixedCluster, Program
from tests.interop.test_interop_mixed_brokers import SETTINGS, produce
from tests.progress import wait_until
from tests.system.transactions.exactly_once import read_committed

ROLES = {1: "broker,controller", 2: "broker"}
TOPIC, PARTITIONS, MOVED = "spread", 6, 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("first", "second"), [("kafka", "barnabas"), ("barnabas", "kafka")])
def test_replicas_move_between_directories_and_a_failed_directory_loses_its_leaderships(
    tmp_path: Path, first: Program, second: Program
) -> None:
    """Broker 2 runs `second` and then `first`, the program of the controller."""
    with MixedCluster(tmp_path, ROLES, settings=SETTINGS, directories=2) as cluster:
        cluster.start({1: first, 2: second})
        with cluster.admin() as admin:
            admin.create_topic(TOPIC, PARTITIONS, 2)
        cluster.wait_in_sync(TOPIC, (1, 2))
        count = 0
        for program in (second, first):
            if cluster[2].program != program:
                cluster[2].stop()
                cluster[2].start(program)
                cluster.wait_in_sync(TOPIC, (1, 2))
            move(cluster)
            cluster.lead(TOPIC, 2)
            count += 60
            produce(cluster, TOPIC, range(count - 60, count), PARTITIONS)
            check(cluster, count)
            lose_a_directory(cluster, program)
            count += 60
            produce(cluster, TOPIC, range(count - 60, count), PARTITIONS)
            check(cluster, count)


def check(cluster: MixedCluster, count: int) -> None:
    found = read_committed(cluster.bootstrap, TOPIC, PARTITIONS)
    assert sorted(int(value) for values in found.values() for value in values) == list(range(count))
    for values in found.values():
        assert values == sorted(values, key=int), "the order of a partition"


def move(cluster: MixedCluster) -> None:
    """Move the replica of partition MOVED on broker 2 into its other directory."""
    replica = TopicPartitionReplica(TOPIC, MOVED, 2)
    with cluster.admin() as admin:
        home = admin.describe_replica_log_dirs([replica])[replica].current
        other = next(str(path) for path in cluster[2].log_dirs if str(path) != home)
        assert admin.alter_replica_log_dirs({replica: other}) == {replica: None}
        wait_until(lambda: admin.describe_replica_log_dirs([replica])[replica].current == other, "the replica is moved")


def lose_a_directory(cluster: MixedCluster, program: Program) -> None:
    """Broker 2 starts while a file is where its second directory was. Its replicas there leave the ISR and lead
    nothing; they come back with the directory."""
    lost = cluster[2].log_dirs[1]
    held = {int(path.name.rpartition("-")[2]) for path in lost.glob(f"{TOPIC}-[0-9]")}
    assert held
    assert held != set(range(PARTITIONS)), "both directories have replicas"
    aside = lost.with_name("aside")
    cluster[2].stop()
    lost.rename(aside)
    lost.write_text("no directory")
    cluster[2].start(program)
    left = set(range(PARTITIONS)) - held
    wait_until(
        lambda: {p.partition for p in cluster.describe(TOPIC).partitions if 2 in p.isr} == left,
        "the replicas in the directory that is left are in sync",
    )
    with cluster.admin() as admin:
        admin.elect_leaders()
    wait_until(
        lambda: {p.partition for p in cluster.describe(TOPIC).partitions if p.leader == 2} == left,
        "only these replicas lead",
    )
    cluster[2].stop()
    lost.unlink()
    aside.rename(lost)
    cluster[2].start(program)
    cluster.wait_in_sync(TOPIC, (1, 2))
