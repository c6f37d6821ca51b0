"""Shell: `python -m bench.spark_read`: records per second from a topic into a Spark DataFrame, ours beside Spark's own
Kafka connector, on the same broker and in the same Spark session.

Each round reads a whole topic of four partitions into Spark's `noop` sink with each source in turn; the figures
are medians over the rounds, after one unmeasured round that warms the JVM. The connector's jars come from Maven
Central; without Maven only our source is measured. `--servers` reads from another cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console
from tests.interop.spark_connector import connector_jars, start_session

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer.producer import AsyncProducer
from barnabas.testing.process import BrokerProcess
from bench.report import Sheet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4


@dataclass(frozen=True)
class Load:
    """One topic to read."""

    size: int
    records: int

    @property
    def topic(self) -> str:
        return f"bench-{self.size}"


async def fill(servers: str, load: Load) -> None:
    """Writes `records` values of `size` bytes with keys of 8 bytes, spread evenly."""
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topic(load.topic, PARTITIONS, 1)
    async with AsyncProducer(bootstrap_servers=servers, batch_size=1_000_000) as producer:
        value = os.urandom(load.size // 2).hex().encode()
        step = max(1, min(50_000, 20_000_000 // load.size))
        for start in range(0, load.records, step):
            rows = range(start, min(start + step, load.records))
            table = pa.table(
                {
                    "key": pa.array([b"%08d" % i for i in rows]),
                    "value": pa.array([value] * len(rows)),
                    "partition": pa.array([i % PARTITIONS for i in rows], pa.int32()),
                }
            )
            await producer.send_arrow(load.topic, table, key="key", partition="partition")


def read(spark: SparkSession, source: str, servers: str, load: Load) -> float:
    """Records per second for one pass over the topic."""
    frame = (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", load.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return load.records / (time.monotonic() - began)


def measure_sources(rounds: int, megabytes: int, servers: str | None = None) -> Sheet:
    """The table: a row for each topic and source, the ratio to Spark's own connector where that is at hand."""
    loads = [Load(size, megabytes * 1_000_000 // (size + 8)) for size in (100, 1000)]
    jars = connector_jars()
    sources = ["barnabas", *(["kafka"] if jars else [])]
    rows: list[tuple[str, ...]] = []
    with ExitStack() as stack:
        if servers is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers = stack.enter_context(BrokerProcess(folder / "broker")).bootstrap_servers
        for load in loads:
            asyncio.run(fill(servers, load))
        spark = start_session(jars)
        stack.callback(spark.stop)
        for load in loads:
            rates: dict[str, list[float]] = {source: [] for source in sources}
            for round_number in range(rounds + 1):
                for source in sources:
                    rate = read(spark, source, servers, load)
                    if round_number:
                        rates[source].append(rate)
            median = {source: statistics.median(found) for source, found in rates.items()}
            for source in sources:
                better = f"{median[source] / median['kafka']:.1f}x" if "kafka" in median else ""
                size = median[source] * (load.size + 8) / 1e6
                rows.append((f'{load.size} B, format("{source}")', f"{median[source]:,.0f}", f"{size:,.0f}", better))
    heading = ("Into a Spark DataFrame", "records/s", "MB/s", "to Spark's connector")
    return Sheet(f"Into Spark (noop sink, local[2], {PARTITIONS} partitions), median of {rounds} rounds", heading, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_read", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="size of each topic (%(default)s)")
    parser.add_argument("--servers", help="measure this cluster instead of starting a broker")
    chosen = parser.parse_args()
    Console().print(measure_sources(chosen.rounds, chosen.megabytes, chosen.servers).render())


if __name__ == "__main__":
    main()
