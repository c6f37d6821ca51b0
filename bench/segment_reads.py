"""Shell: `python -m bench.segment_reads`: a topic read through the broker and from its closed segments, as the tasks of
a Spark batch read it, and the processor time that the broker and the reader spend on it.

One process stands for an executor; Spark itself is left out, because it costs the same in both ways. `readAs=table`
reads the newest record of each of the keys. Figures are medians over the rounds, after one unmeasured round; the rounds
take turns, so that ratios are from the same minutes. On a busy machine, compare the processor times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer.producer import AsyncProducer
from barnabas.spark.options import QueryMode
from barnabas.spark.schema import DDL, TABLE_DDL
from barnabas.spark.source.options import parse_source_options
from barnabas.spark.source.reader import BatchReader
from barnabas.testing.process import BrokerProcess
from bench.report import Sheet

PARTITIONS = 4
KEYS = 20_000
WAYS: Mapping[str, Mapping[str, str]] = {
    "log, broker": {},
    "log, segments": {"readFrom": "segments"},
    "table, broker": {"readAs": "table"},
    "table, segments": {"readAs": "table", "readFrom": "segments"},
}


@dataclass(frozen=True)
class Pass:
    """One read of the whole topic."""

    rows: int
    seconds: float
    broker_seconds: float
    reader_seconds: float


async def fill(servers: str, topic: str, records: int, size: int) -> None:
    """Values of `size` bytes, in about eight segments for each partition; the keys repeat."""
    segment_bytes = max(1 << 20, records * size // PARTITIONS // 8)
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topic(topic, PARTITIONS, 1, {"segment.bytes": str(segment_bytes)})
    async with AsyncProducer(bootstrap_servers=servers, batch_size=100_000) as producer:
        value = os.urandom(size // 2).hex().encode()
        step = max(1, min(50_000, 20_000_000 // size))
        for start in range(0, records, step):
            rows = range(start, min(start + step, records))
            table = pa.table(
                {"key": pa.array([b"%08d" % (i % KEYS) for i in rows]), "value": pa.array([value] * len(rows))}
            )
            await producer.send_arrow(topic, table, key="key")


def processor_seconds(pid: int) -> float:
    """User and system time of a process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read(broker: BrokerProcess, topic: str, way: Mapping[str, str]) -> Pass:
    """Read the topic once, task after task."""
    assert broker.process is not None
    pid = broker.process.pid
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **way}
    columns = tuple(TABLE_DDL) if "readAs" in way else tuple(DDL)
    before, own, began = processor_seconds(pid), time.process_time(), time.monotonic()
    reader = BatchReader(parse_source_options(options, QueryMode.BATCH), columns)
    rows = sum(part.num_rows for task in reader.partitions() for part in reader.read(task))
    seconds = time.monotonic() - began
    return Pass(rows, seconds, processor_seconds(pid) - before, time.process_time() - own)


def measure(rounds: int, megabytes: int) -> Sheet:
    lines: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "broker") as broker:
        for size in (100, 1000):
            topic, records = f"bench-{size}", megabytes * 1_000_000 // (size + 8)
            asyncio.run(fill(broker.bootstrap_servers, topic, records, size))
            passes: dict[str, list[Pass]] = {name: [] for name in WAYS}
            for number in range(rounds + 1):
                for name, way in WAYS.items():
                    found = read(broker, topic, way)
                    assert found.rows == (records if "log" in name else min(KEYS, records)), (name, found)
                    if number:
                        passes[name].append(found)
            for name, found_passes in passes.items():
                seconds = statistics.median(one.seconds for one in found_passes)
                spent = statistics.median(one.broker_seconds for one in found_passes)
                through = passes[name.split(",")[0] + ", broker"]
                ratio = statistics.median(one.seconds for one in through) / seconds
                own = statistics.median(one.reader_seconds for one in found_passes)
                costs = (f"{spent / records * 1e6:.2f}", f"{own / records * 1e6:.2f}")
                lines.append((f"{size} B, {name}", f"{records / seconds:,.0f}", f"{ratio:.2f}x", *costs))
    heading = ("Read by one executor", "log records/s", "to the broker's", "broker CPU s/M", "reader CPU s/M")
    return Sheet(
        f"Closed segments ({PARTITIONS} partitions, {megabytes} MB), median of {rounds} rounds", heading, lines
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.segment_reads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=300, help="size of each topic (%(default)s)")
    chosen = parser.parse_args()
    Console().print(measure(chosen.rounds, chosen.megabytes).render())


if __name__ == "__main__":
    main()
