"""`barnabas cluster rebalance` and `heal` on real clusters that are written to meanwhile: nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.values import NewTopic
from barnabas.core.child_processes import start_child
from barnabas.core.ids import TopicPartition
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import STANDSTILL_S, described, wait_until

pytestmark = pytest.mark.system

PARTITIONS = 8


def command(address: str, *arguments: str) -> dict[str, Any]:
    """Runs `barnabas cluster ARGUMENTS --json`, and returns its document."""
    words = [sys.executable, "-m", "barnabas", "cluster", *arguments, "--json", "--bootstrap-server", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=STANDSTILL_S, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@contextmanager
def writing(address: str) -> Iterator[list[int]]:
    """Writes numbers to the topic until the block ends, and then waits for their acknowledgements. Yields the list of
    the numbers that were acknowledged."""
    acknowledged: list[int] = []
    ended = threading.Event()

    def write() -> None:
        number = 0
        with Producer(bootstrap_servers=address, acks="all") as producer:
            while not ended.is_set():
                sent = [
                    (n, producer.send("t", b"%d" % n, partition=n % PARTITIONS)) for n in range(number, number + 50)
                ]
                for n, future in sent:
                    future.result(STANDSTILL_S)
                    acknowledged.append(n)
                number += 50

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: len(acknowledged) > 0, "the first records are acknowledged")
        yield acknowledged
    finally:
        ended.set()
        thread.join(STANDSTILL_S)


@contextmanager
def watching(address: str, path: Path) -> Iterator[Callable[[], str]]:
    """`heal --watch --execute` as a service. Yields a function that returns what it has said. SIGTERM ends it."""
    words = ["cluster", "heal", "--watch", "--execute", "--after", "PT1S", "--disk-percent", "100"]
    with path.open("w") as said:
        process = start_child(
            [sys.executable, "-m", "barnabas", *words, "--bootstrap-server", address],
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    try:
        yield path.read_text
        assert process.poll() is None, f"a watch does not end: {path.read_text()}"
        process.terminate()
        process.wait(STANDSTILL_S)
        assert "Traceback" not in path.read_text()
    finally:
        process.kill()
        process.wait()


def read_all(address: str, count: int) -> list[int]:
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", p) for p in range(PARTITIONS)])
        records = iter(consumer)
        return sorted(int(next(records).value or b"") for _ in range(count))


def placement(admin: Admin) -> list[tuple[int, ...]]:
    return [tuple(p.replicas) for p in described(admin, "t").partitions]


def leaders(admin: Admin) -> list[int]:
    return [p.leader for p in described(admin, "t").partitions]


def test_an_unbalanced_cluster_becomes_balanced_and_heals_under_load(tmp_path: Path) -> None:
    settings = ("broker.session.timeout.ms=6000", "offsets.topic.num.partitions=4")
    with ClusterProcess(tmp_path, brokers=4, settings=settings) as cluster:
        address = cluster.bootstrap_servers
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("t", replica_assignment=dict.fromkeys(range(PARTITIONS), (1, 2, 3)))])
            goals = ("--goals", "replicas,leaders", "--sample", "0", "--disk-percent", "100")
            with writing(address) as acknowledged:
                shown = command(address, "rebalance", *goals)
                assert (shown["executed"], placement(admin)) == (False, [(1, 2, 3)] * PARTITIONS)
                measured = command(address, "rebalance", "--goals", "network-in,network-out", "--sample", "2")
                rates = {
                    r["broker"]: (r["before"]["bytes_in_per_s"], r["before"]["bytes_out_per_s"])
                    for r in measured["brokers"]
                }
                (led_in, led_out), (follower_in, follower_out) = rates[1], rates[2]
                assert led_in == follower_in > 0, "every replica receives what is written"
                assert led_out >= 2 * led_in, "the leader sends it to two followers"
                assert follower_out < led_out
                assert rates[4] == (0, 0)
                done = command(address, "rebalance", *goals, "--execute", "--throttle", "1000000000", "--at-once", "3")
                assert done["executed"] is True
                moved = {move["partition"]: tuple(move["to"]) for move in done["moves"]}
                planned = [moved.get(f"t-{p}", (1, 2, 3)) for p in range(PARTITIONS)]
                wait_until(lambda: placement(admin) == planned, "the replicas are where the plan puts them")
                after = {row["broker"]: (row["after"]["replicas"], row["after"]["leaders"]) for row in done["brokers"]}
                assert after == {1: (6, 2), 2: (6, 2), 3: (6, 2), 4: (6, 2)}
                wait_until(lambda: sorted(leaders(admin)) == [1, 1, 2, 2, 3, 3, 4, 4], "the preferred replicas lead")
                assert command(address, "rebalance", *goals)["moves"] == []

                cluster.node(4).kill()
                wait_until(
                    lambda: 4 not in {broker.broker_id for broker in admin.describe_cluster().brokers},
                    "the controller has fenced the dead broker",
                )
                shown = command(address, "heal", "--after", "PT0S", "--disk-percent", "100")
                assert (shown["dead"], shown["executed"]) == ([4], False)
                with watching(address, tmp_path / "watch.txt") as said:
                    wait_until(lambda: "healed: " in said(), "the watch has healed the cluster", progress=said)
                    wait_until(
                        lambda: [set(replicas) for replicas in placement(admin)] == [{1, 2, 3}] * PARTITIONS,
                        "the replicas are on the brokers that live",
                    )
                healed = command(address, "heal", "--after", "PT0S", "--execute", "--disk-percent", "100")
                assert (healed["executed"], healed["moves"], healed["unplaced"]) == (False, [], [])
                count = len(acknowledged)
                wait_until(lambda: len(acknowledged) > count, "records are still acknowledged")
            assert set(acknowledged) <= set(read_all(address, len(acknowledged)))
