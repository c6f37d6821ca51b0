"""`barnabas cluster up`, run by a script: a broker is killed and started again by hand; SIGTERM ends the command."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.values import NewTopic
from barnabas.core.child_processes import start_child
from tests.progress import STANDSTILL_S, described, wait_until

UP = [sys.executable, "-m", "barnabas", "cluster", "up", "--port", "0", "-c", "broker.session.timeout.ms=6000"]

BEHIND = ["sh", "-c", 'trap "" INT; exec "$0" "$@"']
"""A script's shell starts a command that ends in `&` with SIGINT ignored."""


class Up:
    """The running command. The constructor returns when the cluster is ready. `pids` has the nodes' process ids."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.said_path = folder / "said.txt"
        with self.said_path.open("w") as said:
            self.process = start_child(
                [*BEHIND, *UP, "--data-dir", str(folder / "my data"), *arguments],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        assert self.process.stdout is not None
        self.pids: dict[int, int] = {}
        for line in self.process.stdout:
            if row := re.match(r" *(\d+)\S*  broker\S* +\S+ +(\d+) ", line):
                self.pids[int(row[1])] = int(row[2])
            if ready := re.match(r"barnabas cluster ready: (\S+)", line):
                self.address = ready[1]
                return
        pytest.fail(self.said)

    @property
    def said(self) -> str:
        return self.said_path.read_text()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(STANDSTILL_S)


@contextmanager
def cluster_up(folder: Path, *arguments: str) -> Iterator[Up]:
    up = Up(folder, *arguments)
    try:
        assert up.pids, "the table names them"
        yield up
        assert up.end() == 0
        assert not [node for node, pid in up.pids.items() if is_alive(pid)]
    finally:
        if up.process.poll() is None:
            up.end()
        for pid in filter(is_alive, up.pids.values()):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def write(address: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=address, acks="all") as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def read(address: str, topic: str, count: int) -> None:
    """Reads `count` records in a group of its own, so that replicated offsets are used, too."""
    with Consumer(bootstrap_servers=address, group_id=os.urandom(4).hex(), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert sum(1 for _ in islice(consumer, count)) == count


def describe(address: str) -> Any:
    command = [sys.executable, "-m", "barnabas", "cluster", "describe", "--json", "-b", address]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def copies(address: str, topic: str) -> set[tuple[int, int]]:
    """For each partition, the numbers of replicas and of in-sync replicas."""
    with Admin(bootstrap_servers=address) as admin:
        return {(len(p.replicas), len(p.isr)) for p in described(admin, topic).partitions}


@pytest.mark.system
def test_killed_broker_is_reported_and_catches_up_after_a_restart(tmp_path: Path) -> None:
    with cluster_up(tmp_path) as up:
        with Admin(bootstrap_servers=up.address) as admin:
            admin.create_topics([NewTopic("t", 3), NewTopic("alone", 1, 1)])
        assert (copies(up.address, "t"), copies(up.address, "alone")) == ({(3, 3)}, {(1, 1)})
        write(up.address, "t", 100)
        write(up.address, "alone", 1)
        os.kill(up.pids.pop(2), signal.SIGKILL)
        told = describe(up.address)
        assert {b["id"]: b["answers"] for b in told["brokers"]} == {1: True, 2: False, 3: True}
        assert told["controller"] in (-1, 1, 3)
        wait_until(lambda: "node 2 has exited" in up.said, "`cluster up` reports that node 2 has exited")
        write(up.address, "t", 100)
        read(up.address, "t", 200)
        assert copies(up.address, "t") == {(3, 2)}

        again = start_child(shlex.split(up.said.splitlines()[-1]), stdout=subprocess.DEVNULL)
        try:
            wait_until(
                lambda: copies(up.address, "t") == {(3, 3)},
                "the restarted broker is in sync",
                progress=lambda: copies(up.address, "t"),
            )
            told = describe(up.address)
            assert all(b["answers"] for b in told["brokers"])
            with Admin(bootstrap_servers=up.address) as admin:
                assert told["controller"] == admin.describe_quorum().leader_id
        finally:
            again.terminate()
            assert again.wait(STANDSTILL_S) == 0
    with cluster_up(tmp_path) as up:
        read(up.address, "t", 200)


def test_cluster_of_two_brokers_survives_the_loss_of_one(tmp_path: Path) -> None:
    with cluster_up(tmp_path, "--brokers", "2") as up:
        with Admin(bootstrap_servers=up.address) as admin:
            admin.create_topics([NewTopic("t", 2)])
        write(up.address, "t", 10)
        os.kill(up.pids.pop(2), signal.SIGKILL)
        write(up.address, "t", 10)
        read(up.address, "t", 20)


@pytest.mark.system
def test_replicas_are_spread_over_brokers_and_not_over_their_processes(tmp_path: Path) -> None:
    with cluster_up(tmp_path, "--brokers", "2", "--processes", "2") as up:
        with Admin(bootstrap_servers=up.address) as admin:
            admin.create_topics([NewTopic("t", 8)])
            partitions = described(admin, "t").partitions
        hosts = [{(replica - 1) // 2 for replica in partition.replicas} for partition in partitions]
        assert hosts == [{0, 1}] * 8, "processes 1 and 2 are one broker, 3 and 4 the other"
        assert {replica for partition in partitions for replica in partition.replicas} == {1, 2, 3, 4}
        write(up.address, "t", 200)
        read(up.address, "t", 200)
