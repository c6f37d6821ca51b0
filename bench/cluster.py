"""Shell: `python -m bench.cluster [--peer kafka]`: three brokers, three replicas, acks=all, beside a peer's three.

Throughput and the 99th percentile of single acknowledged records at 1, 10, 100 and 1,000 partitions; how long writes
stand still when the leader ends (`bench.leader_end`; `--partitions` without a number measures only this). Clusters run
in turn, one at a time, with fresh data. `--write FILE` puts the table between the markers of that file.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from bench.clusters import Cluster, clusters
from bench.leader_end import measure_ends
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
    task = progress.add_task(cluster.name, total=None)
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
        measure_ends(cluster, deaths, out, lambda: progress.advance(task))
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=["kafka"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--deaths", type=int, default=5, help="how often the leader ends, each way")
    parser.add_argument("--partitions", type=int, nargs="*", default=list(PARTITIONS))
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
