"""Read-process-write on three brokers that are killed, stopped and paused: the output equals the input.

Each broker leads some of the partitions and coordinators involved: those of the two topics, of the transactional id and
of the group. Each fault moves some of them to other brokers in the middle of a transaction.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.process_cluster import ClusterProcess
from tests.librdkafka import create_topics
from tests.system.transactions.exactly_once import (
    PARTITIONS,
    Application,
    Progress,
    _difference,
    _fill,
    _sleep,
    read_committed,
    wait_copied,
)

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
    "offsets.topic.num.partitions=6",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.num.partitions=6",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "min.insync.replicas=2",
    "default.replication.factor=3",
    "broker.session.timeout.ms=3000",
)
AWAY_S = 5.0
"""The duration of a fault. It exceeds broker.session.timeout.ms, so other brokers take over the partitions."""


def _strike(cluster: ClusterProcess, node_id: int, how: str) -> None:
    """Kills, stops or pauses a broker for `AWAY_S`, and then starts or resumes it."""
    node = cluster.node(node_id)
    if how == "kill":
        node.kill()
    elif how == "stop":
        node.stop()
    else:
        node.pause()
    _sleep(AWAY_S)  # the fault lasts so long
    if how == "pause":
        node.resume()
    else:
        node.start(60)


def _prove(folder: Path, *, records: int, seed: int, strikes: list[str]) -> None:
    rng = random.Random(seed)
    with ClusterProcess(folder / "cluster", settings=SETTINGS) as cluster:
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create_topics(admin, [NewTopic(name, PARTITIONS, 3) for name in ("input", "output")])
        command = [
            sys.executable,
            "-m",
            "tests.system.transactions.copier",
            bootstrap,
            "input",
            "output",
            "copiers",
            "50",
        ]
        app = Application(command, folder / "application.log.txt")
        progress = Progress(bootstrap, "input")
        fed = 0
        try:
            for number, how in enumerate([*strikes, ""], start=1):
                upto = records * number // (len(strikes) + 1)
                _fill(bootstrap, "input", fed, upto)
                app.keep_running()
                wait_copied(progress, fed + 1, app, f"seed {seed}; see {folder}")
                fed = upto
                if how:
                    _sleep(rng.uniform(0.0, 0.05))  # somewhere in the middle of a transaction
                    _strike(cluster, rng.choice(cluster.broker_ids), how)
            wait_copied(progress, records, app, f"seed {seed}; see {folder}")
        finally:
            app.kill()
            progress.close()
        copied = read_committed(bootstrap, "output", PARTITIONS)
        for partition in range(PARTITIONS):
            expected = [f"{i}" for i in range(partition, records, PARTITIONS)]
            assert copied[partition] == expected, _difference(expected, copied[partition], seed)


@pytest.mark.system
def test_transactional_copy_is_exactly_once_while_brokers_fail(tmp_path: Path) -> None:
    _prove(tmp_path, records=3_000, seed=1, strikes=["kill", "pause", "stop"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [11, 12])
def test_long_transactional_copy_is_exactly_once_while_brokers_fail(tmp_path: Path, seed: int) -> None:
    strikes = [("kill", "pause", "stop")[number % 3] for number in range(12)]
    _prove(tmp_path, records=30_000, seed=seed, strikes=strikes)
