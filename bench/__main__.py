"""Shell: `python -m bench [--peer kafka]`: the broker's speed, size and start-up, beside a peer on the same machine.

The two brokers are measured in turn (ours, peer, ours, peer, ...), one running at a time, each with fresh data and its
default configuration; the figures are medians over the rounds, the ratios are medians of the rounds' ratios, so that a
machine whose speed drifts does not decide. `--write FILE` stores the table as Markdown.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.servers import Server, cpu_seconds, find_server, resident_bytes
from bench.workloads import run_workload


@dataclass(frozen=True)
class Figure:
    """A row of the table. `better` is +1 where more is better, -1 where less is."""

    name: str
    unit: str
    better: int


@dataclass(frozen=True)
class Load:
    """One produce-and-consume workload."""

    size: int
    batch: int
    codec: str
    partitions: int
    client: str = "librdkafka"

    @property
    def label(self) -> str:
        batch = f"{self.batch // 1024} KB" if self.batch < 1_000_000 else "1 MB"
        size = f"{self.size} B" if self.size < 1000 else "1 KB"
        parts = f"{self.partitions} partition" + ("s" if self.partitions > 1 else "")
        return f"{size} records, {batch} batches, {self.codec}, {parts}"


LOADS = [
    Load(100, 16_384, "none", 1),
    Load(100, 1_000_000, "none", 1),
    Load(1000, 16_384, "none", 1),
    Load(1000, 1_000_000, "none", 1),
    Load(1000, 1_000_000, "none", 4),
    Load(100, 1_000_000, "lz4", 1),
    Load(1000, 16_384, "zstd", 4),
    Load(1000, 16_384, "none", 1, client="java"),
    Load(100, 16_384, "none", 4, client="java"),
]

Measured = dict[Figure, float]


def measure(server: Server, loads: list[Load], megabytes: int, progress: Progress) -> Measured:
    """One round on one broker: start it with fresh data, measure everything, stop it."""
    out: Measured = {}
    task = progress.add_task(server.name, total=2 * len(loads) + 3)
    server.start()
    try:
        out[Figure("start-up, until ApiVersions is answered", "s", -1)] = server.start_seconds
        time.sleep(3.0)
        out[Figure("resident memory, idle", "MB", -1)] = resident_bytes(server.pid()) / 1e6
        progress.advance(task)
        address = server.bootstrap_servers
        run_workload("create_topic", address, topic="latency", partitions=1)
        run_workload("latency", address, topic="latency", count=2000, size=100)  # warm-up
        result = run_workload("latency", address, topic="latency", count=4000, size=100)
        out[Figure("acknowledged single record, p50", "us", -1)] = result["p50_us"]
        out[Figure("acknowledged single record, p99", "us", -1)] = result["p99_us"]
        progress.advance(task)
        for number, load in enumerate(loads):
            topic = f"load-{number}"
            run_workload("create_topic", address, topic=topic, partitions=load.partitions)
            amount = megabytes // 4 if load.size < 1000 else megabytes
            arguments = {"topic": topic, "size": load.size, "batch": load.batch, "codec": load.codec}
            workload = "produce" if load.client == "librdkafka" else "java_produce"
            cpu = cpu_seconds(server.pid())
            result = run_workload(workload, address, megabytes=amount, **arguments)
            cpu = cpu_seconds(server.pid()) - cpu
            out[Figure(f"produce ({load.client}): {load.label}", "MB/s", 1)] = result["mb"]
            out[Figure("   broker CPU for it", "ms/MB", -1 - number)] = cpu * 1000 / amount
            progress.advance(task)
            if load.client == "librdkafka":
                options = {"topic": topic, "size": load.size, "partitions": load.partitions}
                result = run_workload("consume", address, megabytes=amount, **options)
                out[Figure(f"consume ({load.client}): {load.label}", "MB/s", 1)] = result["mb"]
            progress.advance(task)
        out[Figure("resident memory, after the load", "MB", -1)] = resident_bytes(server.pid()) / 1e6
        progress.advance(task)
    finally:
        server.stop()
    return out


def ratio(figure: Figure, ours: float, peer: float) -> float:
    """How many times better ours is; below 1 means worse."""
    if not ours or not peer:
        return float("nan")
    return ours / peer if figure.better > 0 else peer / ours


def build_rows(ours: list[Measured], peers: list[Measured]) -> list[tuple[str, str, str, str]]:
    rows = []
    for figure in ours[0]:
        mine = [m[figure] for m in ours]
        row = [f"{figure.name}", f"{_number(statistics.median(mine))} {figure.unit}", "", ""]
        if peers:
            theirs = [m[figure] for m in peers]
            row[2] = f"{_number(statistics.median(theirs))} {figure.unit}"
            ratios = [ratio(figure, a, b) for a, b in zip(mine, theirs, strict=True)]
            row[3] = f"{statistics.median(ratios):.2f}x"
        rows.append((row[0], row[1], row[2], row[3]))
    return rows


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0])
    parser.add_argument("--peer", choices=["kafka"], help="a broker to run beside ours")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--megabytes", type=int, default=300, help="per 1 KB load; a quarter of it per 100 B load")
    parser.add_argument("--quick", action="store_true", help="two loads, one round, 100 MB")
    parser.add_argument("--write", type=Path, help="also write the table to this Markdown file")
    options = parser.parse_args()
    loads = LOADS[0:3:2] if options.quick else LOADS
    if options.peer is None:
        loads = [load for load in loads if load.client == "librdkafka"]
    rounds, megabytes = (1, 100) if options.quick else (options.rounds, options.megabytes)
    console = Console()
    ours: list[Measured] = []
    peers: list[Measured] = []
    with Progress(console=console, transient=True) as progress:
        for _ in range(rounds):
            for name, results in (("barnabas", ours), (options.peer, peers)):
                if name:
                    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
                        results.append(measure(find_server(name, Path(folder)), loads, megabytes, progress))
    rows = build_rows(ours, peers)
    heading = ["", "Barnabas", "Apache Kafka", "better by"] if peers else ["", "Barnabas"]
    title = f"median of {rounds} rounds, {os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table(title=title)
    for column in heading:
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        table.add_row(*row[: len(heading)])
    console.print(table)
    if options.write:
        lines = ["| " + " | ".join(heading) + " |", "|---" + "|---:" * (len(heading) - 1) + "|"]
        lines += ["| " + " | ".join(row[: len(heading)]) + " |" for row in rows]
        options.write.write_text(f"{title}\n\n" + "\n".join(lines) + "\n")
        console.print(f"written to {options.write}")


if __name__ == "__main__":
    main()
