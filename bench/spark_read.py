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
from rich.table import Table
from tests.interop.spark_connector import connector_jars, start_session

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer import AsyncProducer
from barnabas.testing.process import BrokerProcess

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_read", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="size of each topic (%(default)s)")
    parser.add_argument("--servers", help="measure this cluster instead of starting a broker")
    chosen = parser.parse_args()
    loads = [Load(size, chosen.megabytes * 1_000_000 // (size + 8)) for size in (100, 1000)]
    jars = connector_jars()
    sources = ["barnabas", *(["kafka"] if jars else [])]
    with ExitStack() as stack:
        servers = chosen.servers
        if servers is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers = stack.enter_context(BrokerProcess(folder / "broker")).bootstrap_servers
        for load in loads:
            asyncio.run(fill(servers, load))
        spark = start_session(jars)
        stack.callback(spark.stop)
        table = Table(title="Into a Spark DataFrame (noop), local[2]")
        for name in ("records", "format", "records/s", "MB/s", "ratio"):
            table.add_column(name, justify="left" if name in ("records", "format") else "right")
        for load in loads:
            rates: dict[str, list[float]] = {source: [] for source in sources}
            for round_number in range(chosen.rounds + 1):
                for source in sources:
                    rate = read(spark, source, servers, load)
                    if round_number:
                        rates[source].append(rate)
            best = {source: statistics.median(found) for source, found in rates.items()}
            for source in sources:
                ratio = f"{best[source] / best['kafka']:.1f}x" if "kafka" in best else ""
                megabytes = best[source] * (load.size + 8) / 1e6
                table.add_row(f"{load.size} B", source, f"{best[source]:,.0f}", f"{megabytes:,.0f}", ratio)
        Console().print(table)


if __name__ == "__main__":
    main()
