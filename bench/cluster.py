"""Shell: `python -m bench.cluster [--peer kafka]`: three brokers, three replicas, acks=all, beside a peer's three.

Throughput and the 99th percentile of single acknowledged records at 1, 10, 100 and 1,000 partitions; how long writes
stand still when the leader is killed (kill -9) and when it is stopped in order (SIGTERM). Clusters run in turn, one at
a time, with fresh data. `--write FILE` puts the table between the markers of that file.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from bench.clusters import Cluster, clusters
from bench.report import Figure, Measured, compare, write
from bench.servers import cpu_seconds, resident_bytes
from bench.workloads import run_workload

SECTION: Final = "measured cluster"
PARTITIONS: Final = (1, 10, 100, 1000)
_MEGABYTES: Final = 100
_RECORDS: Final = 2_000


def measure(cluster: Cluster, partitions: tuple[int, ...], deaths: int, progress: Progress) -> Measured:
    """One round on one cluster, from fresh data."""
    out: Measured = {}
    task = progress.add_task(cluster.name, total=2 * len(partitions) + 2 * deaths + 1)
    began = time.monotonic()
    cluster.start()
    run_workload("create_topic", cluster.bootstrap_servers, topic="first", partitions=1, replicas=3)
    out[Figure("three nodes, until the first topic is there", "s", -1)] = time.monotonic() - began
    out[Figure("resident memory of the three, idle", "MB", -1)] = sum(map(resident_bytes, cluster.pids())) / 1e6
    progress.advance(task)
    try:
        for count in partitions:
            _load(cluster, count, out)
            progress.advance(task, 2)
        _deaths(cluster, deaths, out, progress, task)
    finally:
        cluster.stop()
    return out


def _load(cluster: Cluster, count: int, out: Measured) -> None:
    topic, where = f"p{count}", cluster.bootstrap_servers
    label = f"{count:,} partition{'s' if count > 1 else ''}"
    run_workload("create_topic", where, topic=topic, partitions=count, replicas=3)
    run_workload("produce", where, topic=topic, size=1000, batch=16_384, codec="none", megabytes=5)
    before = sum(map(cpu_seconds, cluster.pids()))
    done = run_workload("produce", where, topic=topic, size=1000, batch=16_384, codec="none", megabytes=_MEGABYTES)
    spent = sum(map(cpu_seconds, cluster.pids())) - before
    out[Figure(f"produce, {label}", "MB/s", +1)] = done["mb"]
    out[Figure("CPU of the three for that", "ms/MB", -1, count)] = spent * 1000 / _MEGABYTES
    times = run_workload("latency", where, topic=topic, count=_RECORDS, size=100)
    out[Figure(f"acknowledged single record, p50, {label}", "us", -1)] = times["p50_us"]
    out[Figure(f"acknowledged single record, p99, {label}", "us", -1)] = times["p99_us"]


def _deaths(cluster: Cluster, deaths: int, out: Measured, progress: Progress, task: object) -> None:
    where = cluster.bootstrap_servers
    for how, end in (("killed", cluster.kill), ("stopped in order", cluster.stop_node)):
        gaps = []
        for number in range(deaths):
            topic = f"leader-{how[:4]}-{number}"
            run_workload("create_topic", where, topic=topic, partitions=1, replicas=3)
            with _Writes(where, topic) as writes:
                leader = writes.leader()
                gaps.append(writes.gap_after(lambda leader=leader, end=end: end(leader)))
            cluster.launch(leader)
            progress.advance(task)  # type: ignore[arg-type]
        out[Figure(f"leader {how}: until the next write, median", "s", -1)] = statistics.median(gaps)
        out[Figure(f"leader {how}: until the next write, longest of {deaths}", "s", -1)] = max(gaps)


class _Writes:
    """A producer that writes all the time, and says how long nothing was acknowledged."""

    def __init__(self, where: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._acknowledged: list[float] = []
        self._producer = Producer(
            {
                "bootstrap.servers": where, "acks": "all", "linger.ms": 0, "enable.idempotence": True,
                "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.fast.interval.ms": 50,
                "message.timeout.ms": 120_000, "log_level": 0,
            }
        )  # fmt: skip

    def __enter__(self) -> _Writes:
        self._write_until(lambda: len(self._acknowledged) >= 100)
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(60)

    def leader(self) -> int:
        return int(self._producer.list_topics(self._topic, 20).topics[self._topic].partitions[0].leader)

    def gap_after(self, deed: object) -> float:
        """Do it; the longest time without an acknowledgement from then until writes flow again."""
        assert callable(deed)
        self._acknowledged.clear()
        began = time.monotonic()
        deed()
        done = time.monotonic()
        self._write_until(lambda: sum(at > done for at in self._acknowledged[-50:]) >= 50)
        moments = [began, *self._acknowledged]
        return max(after - before for before, after in itertools.pairwise(moments))

    def _write_until(self, enough: object) -> None:
        assert callable(enough)
        deadline = time.monotonic() + 120
        while not enough():
            if time.monotonic() > deadline:
                raise RuntimeError("nothing is acknowledged any more")
            if len(self._producer) < 20:
                self._producer.produce(self._topic, b"x", on_delivery=self._on_delivery)
            self._producer.poll(0.002)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self._acknowledged.append(time.monotonic())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=["kafka"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--deaths", type=int, default=5, help="how often the leader ends, each way")
    parser.add_argument("--partitions", type=int, nargs="+", default=list(PARTITIONS))
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rounds: dict[str, list[Measured]] = {}
    with Progress(console=Console(stderr=True)) as progress:
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
                for cluster in clusters(options.peer, Path(folder)):
                    measured = measure(cluster, tuple(options.partitions), options.deaths, progress)
                    rounds.setdefault(cluster.name, []).append(measured)
    title = f"Three nodes, three replicas, acks=all; {options.rounds} round(s), {os.cpu_count()} cores, "
    title += f"Python {platform.python_version()}"
    names = ["Barnabas", "Apache Kafka"][: len(rounds)]
    sheet = compare(title, names, rounds["barnabas"], rounds.get("kafka", []))
    Console().print(sheet.render())
    if options.write:
        write(options.write, [sheet], SECTION)


if __name__ == "__main__":
    main()
