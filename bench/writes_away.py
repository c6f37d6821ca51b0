"""Shell: how long writes stay away when a node of three ends or falls silent: `python -m bench.writes_away`.

Three nodes, each broker and controller, Kafka's default time-outs, a topic with three replicas, one producer with
`acks=all` (ours, with its own defaults). The leader of the partition is a node that is not the active controller, or
the active controller itself. It is killed (`kill -9`), paused (SIGSTOP), or stopped in order (SIGTERM), a few times
each. With `--cuts` (root and iproute2) each node of ours is a host of its own, which is cut off from the other nodes:
in both directions, or so that it only receives, or only sends; the producer reaches it all the time.

`--peer kafka` does the same to Apache Kafka, without cuts. docs/OPERATIONS.md has the figures. The cluster's share is
the time until another broker reports the next leader.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress
from tests.system.cluster.hosts import Hosts, missing

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.core.errors import KafkaError
from bench.clusters import BarnabasCluster, Cluster, KafkaCluster
from bench.controller_move import caught_up
from bench.leader_end import WritesAllTheTime
from bench.report import Figure, Measured, compare

NODES: Final = (1, 2, 3)
CONTROLLER: Final = "controller"


@dataclass(frozen=True)
class Fault:
    """What happens to a node, and how it is undone."""

    name: str
    begin: Callable[[int], None]
    end: Callable[[int], None]


def process_faults(cluster: Cluster) -> list[Fault]:
    return [
        Fault("killed", cluster.kill, cluster.launch),
        Fault("paused", cluster.pause, cluster.resume),
        Fault("stopped in order", cluster.stop_node, cluster.launch),
    ]


def cuts(hosts: Hosts) -> list[Fault]:
    def deafen(node: int) -> None:
        for other in NODES:
            if other != node:
                hosts.cut(other, node)

    def mute(node: int) -> None:
        for other in NODES:
            if other != node:
                hosts.cut(node, other)

    def part(node: int) -> None:
        deafen(node)
        mute(node)

    def heal(_: int) -> None:
        hosts.heal()

    return [
        Fault("cut off", part, heal),
        Fault("sends nothing", mute, heal),
        Fault("receives nothing", deafen, heal),
    ]


async def make_topic(where: str, name: str, who: str) -> int:
    """A topic of one partition in a cluster that is well, led by the active controller or by another node. Returns its
    leader."""
    async with AsyncAdmin(bootstrap_servers=where) as admin:
        controller = await caught_up(admin, len(NODES))
        leader = controller if who == CONTROLLER else next(node for node in NODES if node != controller)
        replicas = [leader, *(node for node in NODES if node != leader)]
        await admin.create_topics([NewTopic(name, replica_assignment={0: replicas})])
        while True:
            with contextlib.suppress(KafkaError):
                found = (await admin.describe_topics([name]))[name]
                if isinstance(found, KafkaError):
                    raise found
                partition = found.partitions[0]
                if partition.leader == leader and len(partition.isr) == len(NODES):
                    return leader
            await asyncio.sleep(0.1)


def measure(cluster: Cluster, faults: list[Fault], rounds: int, out: Measured, advance: Callable[[], None]) -> None:
    where = cluster.bootstrap_servers
    for who in ("leader", CONTROLLER):
        for fault in faults:
            gaps, shares = [], []
            for number in range(rounds):
                topic = f"{who}-{fault.name.replace(' ', '-')}-{number}"
                leader = asyncio.run(make_topic(where, topic, who))
                with WritesAllTheTime("our client", where, topic) as writes:
                    gap, share = writes.gap_after(functools.partial(fault.begin, leader), leader)
                gaps.append(gap)
                shares.append(share)
                fault.end(leader)
                advance()
            name = f"{who} {fault.name}"
            out[Figure(f"{name}: until the next write, shortest", "s", -1)] = min(gaps)
            out[Figure(f"{name}: median", "s", -1)] = statistics.median(gaps)
            out[Figure(f"{name}: longest of {rounds}", "s", -1)] = max(gaps)
            out[Figure(f"{name}: until brokers know the next leader, median", "s", -1)] = statistics.median(shares)
            Console(stderr=True).print(cluster.name, name, [round(gap, 2) for gap in gaps])


def run(cluster: Cluster, faults: list[Fault], rounds: int, progress: Progress) -> Measured:
    out: Measured = {}
    task = progress.add_task(cluster.name, total=2 * rounds * len(faults))
    cluster.start()
    try:
        measure(cluster, faults, rounds, out, functools.partial(progress.advance, task))
    finally:
        cluster.stop()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.writes_away")
    parser.add_argument("--cuts", action="store_true")
    parser.add_argument("--peer", choices=["kafka"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with (
        Progress(console=Console(stderr=True)) as progress,
        tempfile.TemporaryDirectory(prefix="writes-away-") as folder,
        contextlib.ExitStack() as stack,
    ):
        cluster: Cluster
        if options.cuts:
            reason = missing()
            if reason:
                raise SystemExit(reason)
            hosts = stack.enter_context(Hosts(len(NODES)))
            cluster = BarnabasCluster(
                Path(folder),
                hosts=[hosts.address(node) for node in NODES],
                prefixes=[hosts.inside(node) for node in NODES],
            )
            measured = run(cluster, cuts(hosts), options.rounds, progress)
        else:
            if options.peer:
                from tests.interop.jars import kafka_classpath

                cluster = KafkaCluster(Path(folder), kafka_classpath())
            else:
                cluster = BarnabasCluster(Path(folder))
            measured = run(cluster, process_faults(cluster), options.rounds, progress)
    title = f"Writes to {cluster.name}, {options.rounds} times each; {os.cpu_count()} cores"
    Console().print(compare(title, [cluster.name], [measured], []).render())


if __name__ == "__main__":
    main()
