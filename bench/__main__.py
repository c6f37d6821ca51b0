"""Shell: `python -m bench [--peer kafka]`: the broker's speed, size and start-up, beside a peer on the same machine.

The two brokers are measured in turn (ours, peer, ours, peer, ...), one running at a time, each with fresh data and its
default configuration; the figures are medians over the rounds, the ratios are medians of the rounds' ratios, so that a
machine whose speed drifts does not decide. `--security ssl` and `--security sasl_ssl` measure a listener with TLS, and
one with TLS and SCRAM. `--write FILE` puts the tables between the markers of that file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench.report import SECTION, Figure, Measured, Sheet, compare, write
from bench.security import PROTOCOLS, SecureListener, make_certificates
from bench.servers import Server, cpu_seconds, find_server, resident_bytes
from bench.workloads import CLIENT_VARIABLE, JAVA_VARIABLE, run_workload


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
    *(Load(size, batch, "none", parts) for size in (100, 1000) for batch in (16_384, 1_000_000) for parts in (1, 4)),
    Load(100, 1_000_000, "lz4", 1),
    Load(1000, 16_384, "lz4", 4),
    Load(1000, 16_384, "zstd", 4),
    Load(1000, 16_384, "none", 1, client="java"),
    Load(100, 16_384, "none", 4, client="java"),
]
QUICK_LOADS = [Load(100, 16_384, "none", 1), Load(1000, 16_384, "none", 1)]
_LATENCY_WARM_UP = 6_000


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
        _measure_latency(server, out)
        progress.advance(task)
        _warm_up(server, megabytes // 3)
        for place, load in enumerate(loads):
            _measure_load(server, load, place, megabytes // 4 if load.size < 1000 else megabytes, out)
            progress.advance(task, 2)
        out[Figure("resident memory, after the load", "MB", -1)] = resident_bytes(server.pid()) / 1e6
        progress.advance(task)
    finally:
        server.stop()
    return out


def _measure_latency(server: Server, out: Measured) -> None:
    address = server.bootstrap_servers
    run_workload("create_topic", address, topic="latency", partitions=1)
    run_workload("latency", address, topic="latency", count=_LATENCY_WARM_UP, size=100)
    result = run_workload("latency", address, topic="latency", count=4000, size=100)
    out[Figure("acknowledged single record, p50", "us", -1)] = result["p50_us"]
    out[Figure("acknowledged single record, p99", "us", -1)] = result["p99_us"]


def _warm_up(server: Server, megabytes: int) -> None:
    """Not counted: a JVM compiles its hot paths under load, and is to be measured as it runs afterwards."""
    address = server.bootstrap_servers
    run_workload("create_topic", address, topic="warm-up", partitions=1)
    run_workload("produce", address, topic="warm-up", size=1000, batch=16_384, codec="none", megabytes=megabytes)
    run_workload("consume", address, topic="warm-up", size=1000, partitions=1, megabytes=megabytes)


def _measure_load(server: Server, load: Load, place: int, megabytes: int, out: Measured) -> None:
    address, topic = server.bootstrap_servers, f"load-{place}"
    run_workload("create_topic", address, topic=topic, partitions=load.partitions)
    arguments = {"topic": topic, "size": load.size, "megabytes": megabytes}
    produce = "produce" if load.client == "librdkafka" else "java_produce"
    produced = {"batch": load.batch, "codec": load.codec, **arguments}
    runs = [("produce", produce, produced)]
    if load.client == "librdkafka":
        runs.append(("consume", "consume", {"partitions": load.partitions, **arguments}))
    for verb, workload, options in runs:
        cpu = cpu_seconds(server.pid())
        result = run_workload(workload, address, **options)
        cpu = cpu_seconds(server.pid()) - cpu
        out[Figure(f"{verb} ({load.client}): {load.label}", "MB/s", 1)] = result["mb"]
        out[Figure(f"broker CPU for that {verb}", "ms/MB", -1, place)] = cpu * 1000 / megabytes


@contextlib.contextmanager
def secure_listener(protocol: str | None) -> Iterator[SecureListener | None]:
    """The listener that the workloads use instead of a PLAINTEXT one; None without a protocol."""
    if protocol is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        secure = SecureListener(protocol, Path(folder))
        make_certificates(secure.folder)
        os.environ[CLIENT_VARIABLE] = json.dumps(secure.client_settings())
        java = secure.folder / "client.properties"
        java.write_text("".join(f"{name}={value}\n" for name, value in secure.java_settings().items()))
        os.environ[JAVA_VARIABLE] = str(java)
        try:
            yield secure
        finally:
            del os.environ[CLIENT_VARIABLE], os.environ[JAVA_VARIABLE]


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often."""

    loads: list[Load]
    rounds: int
    megabytes: int
    security: str | None = None

    @property
    def title(self) -> str:
        over = f" over {self.security.upper()}" if self.security else ""
        return f"Median of {self.rounds} rounds{over}, {os.cpu_count()} cores, Python {platform.python_version()}"


def measure_brokers(peer: str | None, plan: Plan, console: Console) -> Sheet:
    """The table of both brokers; without a peer, of ours."""
    ours: list[Measured] = []
    peers: list[Measured] = []
    with secure_listener(plan.security) as secure, Progress(console=console, transient=True) as progress:
        for _ in range(plan.rounds):
            for name, results in (("barnabas", ours), (peer, peers)):
                if name:
                    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
                        server = find_server(name, Path(folder), secure)
                        results.append(measure(server, plan.loads, plan.megabytes, progress))
    return compare(plan.title, ("Barnabas", "Apache Kafka"), ours, peers)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0])
    parser.add_argument("--peer", choices=["kafka"], help="a broker to run beside ours")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--megabytes", type=int, default=300, help="per 1 KB load; a quarter of it per 100 B load")
    parser.add_argument("--quick", action="store_true", help="two loads, one round, 100 MB")
    parser.add_argument("--security", choices=PROTOCOLS, help="clients use TLS, or TLS and SCRAM-SHA-512")
    parser.add_argument("--spark", action="store_true", help="also read topics into Spark, beside its own connector")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables between the markers of this file")
    options = parser.parse_args()
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # where start-up is measured, modules are compiled once, as installed
    loads = QUICK_LOADS if options.quick else LOADS
    if options.peer is None:
        loads = [load for load in loads if load.client == "librdkafka"]
    rounds, megabytes = (1, 100) if options.quick else (options.rounds, options.megabytes)
    console = Console()
    plan = Plan(loads, rounds, megabytes, options.security)
    sheets = [measure_brokers(options.peer, plan, console)]
    if options.spark:
        from bench.spark_read import measure_sources

        sheets.append(measure_sources(rounds, 50 if options.quick else 200))
    for sheet in sheets:
        console.print(sheet.render())
    if options.write:
        write(options.write, sheets, f"{SECTION} {options.security}" if options.security else SECTION)
        console.print(f"written to {options.write}")


if __name__ == "__main__":
    main()
