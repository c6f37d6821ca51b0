"""Shell: `python -m bench.mirror`: engines that copy a topic between two clusters.

    python -m bench.mirror                                        # a link, and `barnabas mirror`, between our clusters
    python -m bench.mirror --engines links,mirror,mm2 --rounds 3  # beside Apache's MirrorMaker 2 (Java 17 and Maven)
    python -m bench.mirror --engines mirror,mm2 --clusters kafka

catch up    the topic is full when the engine starts; from the first copied record to the last one that a
            read_committed reader sees
steady      records arrive at `--rate` MB/s; the lag is the time from a record's timestamp to its arrival at a consumer
            of the target cluster
CPU         of the engine's own processes, and of these and both brokers, per MB of records; a link has no processes
failover    of a link: the source is killed; from the command to the first write that the target accepts

Each engine copies the same topic of 8 partitions from the same records into fresh clusters, in turn. With
`--exactly-once` engines use their transactions. The target of a link is ours. `--write FILE` puts the table between the
markers `mirror` of that file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from barnabas.client.blocking import Admin
from barnabas.client.blocking_producer import Producer
from barnabas.client.values import LATEST, IsolationLevel, NewTopic
from barnabas.core.ids import TopicPartition
from bench.mirror_engines import ENGINES, Engine, Route
from bench.mirror_failover import failover_ms
from bench.report import Sheet, write
from bench.servers import Server, cpu_seconds, find_server

TOPIC: Final = "load"
PARTITIONS: Final = 8
BATCH_BYTES: Final = 16_384
"""The size of a producer's batches: Kafka's default."""
STARTED_S: Final = 120.0
DONE_S: Final = 600.0
POLL_S: Final = 0.02


@dataclass(frozen=True)
class Load:
    """The sizes of a run."""

    megabytes: int
    record_bytes: int
    rate: float
    seconds: float
    codec: str
    exactly_once: bool


@dataclass(frozen=True)
class Outcome:
    """One run of one engine. Lags are in milliseconds."""

    megabytes_per_s: float
    records_per_s: float
    own_cpu: float
    """ms per MB"""
    all_cpu: float
    lag_p50: float
    lag_p99: float
    steady_own_cpu: float
    steady_all_cpu: float
    failover: float
    """NaN for engines whose copies take writes all the time."""


@dataclass(frozen=True)
class Run:
    """An engine at work, and the brokers."""

    engine: Engine
    route: Route
    load: Load
    source: Server
    target: Server

    def cpu(self) -> tuple[float, float]:
        """Seconds of the engine's own processes, and of these and the brokers."""
        own = self.engine.cpu_seconds()
        return own, own + cpu_seconds(self.source.pid()) + cpu_seconds(self.target.pid())


@contextmanager
def clusters(kind: str, target_kind: str, folder: Path) -> Iterator[tuple[Server, Server]]:
    """A source and a target cluster of one node each."""
    source, target = find_server(kind, folder / "a"), find_server(target_kind, folder / "b")
    source.start()
    try:
        target.start()
        try:
            yield source, target
        finally:
            target.stop()
    finally:
        source.stop()


def create(bootstrap: str, topic: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])


def end_offsets(admin: Admin, topic: str) -> dict[int, int]:
    """The ends of the partitions for a read_committed reader; none if there is no such topic yet."""
    if topic not in {listing.name for listing in admin.list_topics()}:
        return {}
    partitions = dict.fromkeys((TopicPartition(topic, i) for i in range(PARTITIONS)), LATEST)
    answers = admin.list_offsets(partitions, isolation=IsolationLevel.READ_COMMITTED)
    return {tp.partition: answer.offset for tp, answer in answers.items() if not isinstance(answer, Exception)}


def fill(bootstrap: str, load: Load) -> int:
    """Write the records of the first part, and return their number."""
    import pyarrow as pa

    count = load.megabytes * 1_000_000 // load.record_bytes
    values = [b"%08d" % i + b"abcdefgh" * (load.record_bytes // 8 - 1) for i in range(1_000)]
    settings = {"bootstrap.servers": bootstrap, "compression.type": load.codec, "max.request.size": BATCH_BYTES}
    with Producer(settings) as producer:
        step = 20_000
        for start in range(0, count, step):
            rows = min(step, count - start)
            table = pa.table(
                {
                    "value": pa.array([values[i % 1_000] for i in range(rows)], pa.binary()),
                    "partition": pa.array([i % PARTITIONS for i in range(rows)], pa.int32()),
                }
            )
            producer.send_arrow(TOPIC, table, partition="partition")
    return count


def wait_for(condition: Callable[[], bool], what: str, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise SystemExit(f"the benchmark waited {seconds:.0f} s in vain until {what}")
        time.sleep(POLL_S)  # between two looks at another process


def run_engine(name: str, kind: str, load: Load) -> Outcome:
    target_kind = "barnabas" if name == "links" else kind
    with tempfile.TemporaryDirectory(prefix="bench-mirror-") as scratch:
        folder = Path(scratch)
        with clusters(kind, target_kind, folder) as (source, target):
            create(source.bootstrap_servers, TOPIC)
            count = fill(source.bootstrap_servers, load)
            route = Route(source.bootstrap_servers, target.bootstrap_servers, TOPIC, load.exactly_once)
            run = Run(ENGINES[name](folder / name, route), route, load, source, target)
            try:
                caught = catch_up(run, count)
                steady = steady_load(run)
                failover = fail_over(run) if run.engine.copies_offsets else math.nan
            except BaseException:
                log = folder / name / "log.txt"
                print(log.read_text()[-4_000:] if log.exists() else "", file=sys.stderr)
                raise
            finally:
                run.engine.stop()
    return Outcome(*caught, *steady, failover)


def catch_up(run: Run, count: int) -> tuple[float, float, float, float]:
    """Start the engine. MB/s, records/s, CPU ms per MB, its own and all, from the first copied record to the last."""
    engine = run.engine
    with Admin({"bootstrap.servers": run.route.target}) as admin:

        def copied() -> int:
            return sum(end_offsets(admin, engine.copy).values())

        cpu = run.cpu() if engine.copies_offsets else (0.0, 0.0)
        began, before = time.monotonic(), 0
        engine.start()
        if not engine.copies_offsets:  # the start of a process, with its Java, does not count
            wait_for(lambda: copied() > 0, f"{engine.name} copies", STARTED_S)
            began, cpu, before = time.monotonic(), run.cpu(), copied()
        wait_for(lambda: copied() >= count, f"{engine.name} has copied everything", DONE_S)  # markers come on top
        took, used = time.monotonic() - began, run.cpu()
    records = max(count - before, 1)
    megabytes = records * run.load.record_bytes / 1e6
    own, everything = ((after - earlier) * 1000 / megabytes for after, earlier in zip(used, cpu, strict=True))
    return megabytes / took, records / took, own, everything


def steady_load(run: Run) -> tuple[float, float, float, float]:
    """The lags p50 and p99, and CPU ms per MB, its own and all, while records arrive at a constant rate."""
    load = run.load
    arguments = [run.route.source, run.route.target, TOPIC, run.engine.copy]
    numbers = [str(load.rate), str(load.seconds), str(load.record_bytes)]
    cpu = run.cpu()
    command = [sys.executable, "-m", "bench.mirror_lag", *arguments, *numbers]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=DONE_S)
    used = run.cpu()
    lags = json.loads(done.stdout)
    ordered = sorted(lags["ms"])
    megabytes = lags["records"] * load.record_bytes / 1e6
    own, everything = ((after - before) * 1000 / megabytes for after, before in zip(used, cpu, strict=True))
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], own, everything


def fail_over(run: Run) -> float:
    os.kill(run.source.pid(), signal.SIGKILL)
    return failover_ms(run.route.target, run.engine.copy)


def sheet(found: dict[str, list[Outcome]], kind: str, load: Load) -> Sheet:
    """Medians over the rounds."""
    at = f"at {load.rate:g} MB/s"
    labels: dict[str, Callable[[Outcome], str]] = {
        "catch up, MB/s": lambda o: f"{o.megabytes_per_s:.0f}",
        "catch up, records/s": lambda o: f"{o.records_per_s:,.0f}",
        "catch up, CPU of the engine, ms per MB": lambda o: f"{o.own_cpu:.1f}",
        "catch up, CPU with both brokers, ms per MB": lambda o: f"{o.all_cpu:.1f}",
        f"lag p50 {at}, ms": lambda o: f"{o.lag_p50:.0f}",
        f"lag p99 {at}, ms": lambda o: f"{o.lag_p99:.0f}",
        f"CPU of the engine {at}, ms per MB": lambda o: f"{o.steady_own_cpu:.1f}",
        f"CPU with both brokers {at}, ms per MB": lambda o: f"{o.steady_all_cpu:.1f}",
        "failover, from the command to the first accepted write, ms": lambda o: (
            "-" if math.isnan(o.failover) else f"{o.failover:.0f}"
        ),
    }
    middle = {name: _median(outcomes) for name, outcomes in found.items()}
    rows = [(label, *(show(middle[name]) for name in found)) for label, show in labels.items()]
    mode = "exactly once" if load.exactly_once else "at least once"
    size = f"{load.megabytes} MB of {load.record_bytes} B records, {load.codec}"
    title = f"Mirroring between two {kind} clusters: {mode}, {size}"
    return Sheet(title, ("", *found), rows)


def _median(outcomes: Sequence[Outcome]) -> Outcome:
    columns = [[getattr(outcome, name) for outcome in outcomes] for name in Outcome.__dataclass_fields__]
    return Outcome(*(statistics.median(column) for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.mirror", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--engines", default="links,mirror", help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--clusters", default="barnabas", choices=("barnabas", "kafka"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--record-bytes", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=5.0, help="MB/s of the steady load")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--exactly-once", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the markers of this file")
    given = parser.parse_args()
    load = Load(given.megabytes, given.record_bytes, given.rate, given.seconds, given.codec, given.exactly_once)
    names = given.engines.split(",")
    found: dict[str, list[Outcome]] = {name: [] for name in names}
    for number in range(given.rounds):
        for name in names:
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
            found[name].append(run_engine(name, given.clusters, load))
    measured = sheet(found, given.clusters, load)
    Console().print(measured.render())
    if given.write:
        write(given.write, [measured], f"mirror {given.clusters}" if given.clusters != "barnabas" else "mirror")


if __name__ == "__main__":
    main()
