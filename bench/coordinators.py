"""Shell: `python -m bench.coordinators [--peer kafka]`: what transactions, rebalances and compaction cost.

Transactions are librdkafka's, each of some records, one after the other: what counts there is how long a commit takes.
Rebalances are of 100 and of 1,000 members. As in `python -m bench`, the brokers run in turn, one at a time, and the
ratios are medians of the rounds' ratios. Compaction is measured inside our own process: Apache Kafka's cleaner cannot
be asked to run now. `--write FILE` puts the tables between the `coordinators` markers of that file.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.compaction import bench as compact
from bench.group_members import rebalance_classic, reconcile_consumer
from bench.report import Figure, Measured, Sheet, compare, number, write
from bench.servers import Server, find_server

MEMBERS = (100, 1_000)
PARTITIONS = 4
OPEN_FILES = 8_192


@dataclass(frozen=True)
class Transactions:
    """So many records in a transaction, and how many transactions are counted after a warm-up of as many."""

    records: int
    count: int

    @property
    def label(self) -> str:
        return "1 record" if self.records == 1 else f"{self.records} records"


LOADS = (Transactions(1, 300), Transactions(100, 200), Transactions(1_000, 60))


def measure(server: Server, rounds: int) -> Measured:
    """One broker with fresh data, from the first transaction to the last rebalance."""
    out: Measured = {}
    server.start()
    try:
        address = server.bootstrap_servers
        _create(address, "transactions", PARTITIONS)
        for load in LOADS:
            _measure_transactions(address, load, out)
        for count in MEMBERS:
            seconds = rebalance_classic(address, count, 2 * rounds)[rounds:]  # the first half warms up
            out[Figure(f"rebalance of {count:,} members, classic protocol", "ms", -1)] = (
                statistics.median(seconds) * 1000
            )
        for count in MEMBERS:
            _create(address, f"shared-{count}", count)
            took = reconcile_consumer(address, f"shared-{count}", count)
            out[Figure(f"{count:,} members join at once, KIP-848", "ms", -1)] = took * 1000
    finally:
        server.stop()
    return out


def _create(address: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def _measure_transactions(address: str, load: Transactions, out: Measured) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": f"bench-{load.records}",
            "linger.ms": 1,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    value = os.urandom(50).hex().encode()
    commits: list[float] = []
    began = 0.0
    for number_ in range(2 * load.count):
        if number_ == load.count:  # what came before was the warm-up
            commits.clear()
            began = time.perf_counter()
        producer.begin_transaction()
        for record in range(load.records):
            producer.produce("transactions", value, partition=record % PARTITIONS)
        producer.flush(60)
        asked = time.perf_counter()
        producer.commit_transaction(60)
        commits.append(time.perf_counter() - asked)
    seconds = time.perf_counter() - began
    commits.sort()
    out[Figure(f"transactions of {load.label}", "/s", 1)] = load.count / seconds
    if load.records > 1:
        out[Figure(f"records in transactions of {load.label}", "/s", 1)] = load.count * load.records / seconds
    out[Figure(f"commit of {load.label}, p50", "ms", -1)] = commits[len(commits) // 2] * 1000
    out[Figure(f"commit of {load.label}, p99", "ms", -1)] = commits[int(len(commits) * 0.99)] * 1000


def compare_brokers(peer: str | None, rounds: int) -> Sheet:
    ours: list[Measured] = []
    peers: list[Measured] = []
    for _ in range(rounds):
        for name, results in (("barnabas", ours), (peer, peers)):
            if name:
                with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
                    results.append(measure(find_server(name, Path(folder)), 3))
    title = f"Transactions and groups: median of {rounds} rounds, {os.cpu_count()} cores, Python {_python()}"
    return compare(title, ("Barnabas", "Apache Kafka"), ours, peers)


def _python() -> str:
    return platform.python_version()


def compaction_sheet(megabytes: int) -> Sheet:
    """One pass over a log of random updates, by the compiled engine and by plain Python."""
    from barnabas.protocol.records.compression import CompressionType
    from barnabas.server.storage.cleaner.columns import ColumnarKeys
    from barnabas.server.storage.cleaner.keys import PlainKeys

    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        compact(f"{folder}/warm-up", ColumnarKeys, 2, 1_000, 150, CompressionType.NONE)  # the kernels are compiled
        for codec in (CompressionType.NONE, CompressionType.ZSTD):
            for name, engine, scale in (("compiled", ColumnarKeys, 1), ("plain Python", PlainKeys, 4)):
                size = megabytes // scale
                row = compact(f"{folder}/{name}-{codec.name}", engine, size, 5_000, 150, codec)
                label = f"compaction, {name}, {codec.name.lower()}"
                rows.append((label, f"{number(row['mb_s'])} MB/s", f"{number(row['records_s'])} records/s"))
    title = f"Compaction: one pass over {megabytes} MB of 100-byte records with 5,000 keys, batches of 150"
    return Sheet(title, ("", "log", "records"), rows)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m bench.coordinators", description=__doc__.split("\n")[0])
    parser.add_argument("--peer", choices=["kafka"], help="a broker to run beside ours")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--megabytes", type=int, default=64, help="the log that is compacted")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables between the markers of this file")
    options = parser.parse_args()
    _allow_open_files()
    console = Console()
    sheets = [compare_brokers(options.peer, options.rounds), compaction_sheet(options.megabytes)]
    for sheet in sheets:
        console.print(sheet.render())
    if options.write:
        write(options.write, sheets, section="coordinators")
        console.print(f"written to {options.write}")


def _allow_open_files() -> None:
    """A connection a member, here and in the broker, which inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, hard), hard))


if __name__ == "__main__":
    main()
