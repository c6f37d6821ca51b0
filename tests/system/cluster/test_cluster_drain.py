"""`barnabas cluster drain` on a real cluster: interrupted, run again, and finished while the drained broker is down."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from barnabas.client.values import ConfigResource, ConfigSource, NewTopic
from barnabas.core.child_processes import start_child
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import STANDSTILL_S, described, wait_until

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def cluster_command(address: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas", "cluster", *arguments, "--bootstrap-server", address]
    return start_child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(address: str, *arguments: str) -> str:
    """Runs the command, and returns its standard error."""
    _, said = (running := cluster_command(address, *arguments)).communicate(timeout=STANDSTILL_S)
    assert running.returncode == 0, said
    return said


def replicas(admin: Admin) -> list[set[int]]:
    return [set(partition.replicas) for partition in described(admin, "t").partitions]


def throttles(admin: Admin, *brokers: int) -> dict[str, str | None]:
    """The throttle configs that are set on the topic and on these brokers."""
    resources = {"t": ConfigResource.topic("t")} | {str(b): ConfigResource.broker(b) for b in brokers}
    found = admin.describe_configs(resources.values(), names=(LEADERS, FOLLOWERS, *RATES))
    return {
        f"{owner} {name}": entry.value
        for owner, resource in resources.items()
        for name, entry in sorted(found[resource].items())  # type: ignore[union-attr]  # all can be described
        if entry.source in (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
    }


def wait_for_throttles(admin: Admin, wanted: dict[str, str | None]) -> None:
    """A command ends when its change is committed; the broker that is asked reads it a moment later."""
    wait_until(
        lambda: throttles(admin, 1, 2, 3, 4) == wanted,
        f"the throttle configs are {wanted}",
        progress=lambda: throttles(admin, 1, 2, 3, 4),
    )


def throttled(bytes_per_second: int, *brokers: int) -> dict[str, str | None]:
    """The throttle configs when t-0 on brokers 1, 2 and t-1 on brokers 2, 1 are drained from broker 1 to 3 and 4."""
    lists: dict[str, str | None] = {f"t {FOLLOWERS}": "0:3,1:4", f"t {LEADERS}": "0:1,0:2,1:1,1:2"}
    return lists | {f"{broker} {name}": str(bytes_per_second) for broker in brokers for name in sorted(RATES)}


@pytest.mark.system
def test_interrupted_drain_finishes_after_the_drained_broker_is_killed(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, brokers=4, settings=("broker.session.timeout.ms=6000",)) as cluster:
        address = cluster.bootstrap_servers
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("t", replica_assignment={0: (1, 2), 1: (2, 1)})])
            with Producer(bootstrap_servers=address, acks="all") as producer:
                for partition in (0, 1):
                    for _ in range(800):
                        producer.send("t", bytes(10_000), partition=partition)
                producer.flush()

            waiting = cluster_command(address, "drain", "1", "--throttle", "1000")
            assert waiting.stderr is not None
            assert waiting.stderr.readline() == "0 of 2 moved\n"
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate(timeout=STANDSTILL_S)
            assert (waiting.returncode, said) == (
                130,
                "not waiting any more: the reassignments continue, and the throttle remains set; `barnabas cluster "
                "moves`, when no reassignment is under way, removes it\n",
            )
            wait_for_throttles(admin, throttled(1000, 1, 2, 3, 4))
            run(address, "drain", "1", "--throttle", "2000", "--no-wait")
            assert "2 moves under way" in run(address, "moves")
            wait_for_throttles(admin, throttled(2000, 1, 2, 3, 4))

            cluster.node(1).kill()
            assert "2 partitions moved" in run(address, "drain", "1", "--throttle", "1000000000")
            assert admin.list_partition_reassignments() == {}
            wait_until(lambda: replicas(admin) == [{2, 3}, {2, 4}], "the partitions are on brokers 2, 3 and 2, 4")
            cluster.node(1).start(60)
            wait_for_throttles(admin, {})

            run(address, "reassign", "--topic", "t", "--to", "1,2", "--throttle", "1000000000", "--no-wait")
            run(address, "reassign", "--topic", "t", "--to", "1,2")  # waits for what is under way
            assert throttles(admin, 1, 2, 3, 4) != {}
            assert run(address, "moves") == ("throttle removed from t; brokers 1, 2, 3, 4\n0 moves under way\n")
            wait_for_throttles(admin, {})
