"""The commands of the README's section about clusters, as they are written there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from barnabas.client.values import NewTopic
from barnabas.core.errors import KafkaError
from tests.progress import STANDSTILL_S, described, wait_until
from tests.system.cluster.test_cluster_up import cluster_up

README = Path(__file__).parents[3] / "README.md"


def commands() -> list[list[str]]:
    """The words of each command in the first code block of the section."""
    block = README.read_text().split("\n## A cluster\n", 1)[1].split("```\n", 2)[1]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def run(address: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words, "-b", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=STANDSTILL_S, check=False)


def leaders(admin: Admin) -> list[int]:
    """The leader of each partition; empty while the asked broker has not read that the topic was created."""
    view = admin.describe_topics(["flights"])["flights"]
    return [] if isinstance(view, KafkaError) else [partition.leader for partition in view.partitions]


def replicas(admin: Admin) -> set[int]:
    return {broker for partition in described(admin, "flights").partitions for broker in partition.replicas}


@pytest.mark.system
def test_commands_of_the_readme_work_on_the_cluster_of_the_readme(tmp_path: Path) -> None:
    up, *others = commands()
    assert up[:3] == ["barnabas", "cluster", "up"]
    drained = int(others[-1][-1])
    assert others[-1] == ["barnabas", "cluster", "drain", str(drained)]
    with cluster_up(tmp_path, *up[3:]) as cluster, Admin(bootstrap_servers=cluster.address) as admin:
        admin.create_topics([NewTopic("flights", 4)])
        with Producer(bootstrap_servers=cluster.address, acks="all") as producer:
            for number in range(100):
                producer.send("flights", b"%d" % number)
        assert drained in replicas(admin)
        for words in others:
            done = run(cluster.address, words)
            assert done.returncode == 0, done.stderr
        wait_until(lambda: drained not in replicas(admin), f"broker {drained} has no replica")


@pytest.mark.system
def test_broker_that_cannot_be_drained_can_give_up_its_leaderships(tmp_path: Path) -> None:
    with cluster_up(tmp_path, "--brokers", "3") as cluster, Admin(bootstrap_servers=cluster.address) as admin:
        admin.create_topics([NewTopic("flights", 4)])
        wait_until(lambda: 3 in leaders(admin), "broker 3 leads a partition of the new topic")
        refused = run(cluster.address, ["barnabas", "cluster", "drain", "3"])
        assert refused.returncode == 2
        said = re.sub(r"\s+", " ", refused.stderr)
        assert "Broker 3 cannot be drained: flights-0 has 3 replicas (as do 3 other partitions), and only 2" in said
        advised = re.findall(r"`(barnabas cluster drain [^`]+)`", said)
        assert len(advised) == 1
        done = run(cluster.address, shlex.split(advised[0]))
        assert done.returncode == 0, done.stderr
        wait_until(lambda: 3 not in leaders(admin), "broker 3 leads no partition")
        assert replicas(admin) == {1, 2, 3}
