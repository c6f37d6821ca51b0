"""Shell: `python -m bench.spark_typed`: records per second of JSON and Avro values as typed columns in Spark.

    ours                    format("barnabas") with valueFormat: compiled decoders in the Python workers
    ours, then from_json    format("barnabas") with raw values, decoded by Spark's expression in the JVM
    connector               format("kafka"), Spark's own connector, and Spark's from_json or from_avro

The schema registry is ours. `from_avro` gets the value without the five bytes of its schema id. The connector and
`from_avro` come from Maven Central; without Maven their rows are left out. Figures are medians over the rounds, after
one unmeasured round that warms the JVM and compiles the decoders; every query computes the same aggregate.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from tests.interop.jars import MavenMissingError, resolve
from tests.interop.spark_connector import connector_jars, start_session
from tests.system.registry.conftest import RunningRegistry

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer.producer import AsyncProducer
from barnabas.registry import RegistryClient
from barnabas.registry.columns import AvroColumns
from barnabas.spark.records.avro_schemas import avro_schema_of
from barnabas.spark.records.encoding import json_texts
from barnabas.spark.records.types import spark_ddl
from barnabas.testing.process import BrokerProcess
from bench.report import Sheet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
STEP = 50_000
RIDE = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("city", pa.string()),
        pa.field("rider", pa.string()),
        pa.field("km", pa.float64()),
        pa.field("seats", pa.int32()),
        pa.field("paid", pa.bool_()),
    ]
)
SCHEMA = avro_schema_of(RIDE, "Ride")


@dataclass(frozen=True)
class Place:
    """The session and where its data is."""

    spark: SparkSession
    servers: str
    registry: str

    def load(self, source: str, topic: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(source).option("kafka.bootstrap.servers", self.servers)
        return reader.options(**options).option("subscribe", topic).option("startingOffsets", "earliest").load()


async def fill(servers: str, registry: RegistryClient, records: int) -> None:
    """Writes the same rides as JSON to the topic `json`, and as Avro to the topic `avro`."""
    avro: Any = AvroColumns(registry, SCHEMA)
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        for topic in ("json", "avro"):
            await admin.create_topic(topic, PARTITIONS, 1)
    async with AsyncProducer(bootstrap_servers=servers, batch_size=1_000_000) as producer:
        for start in range(0, records, STEP):
            rows = range(start, min(start + STEP, records))
            rides = pa.array([ride(row) for row in rows], RIDE)
            partition = pa.array([row % PARTITIONS for row in rows], pa.int32())
            encoded = {"json": json_texts(rides, b""), "avro": await asyncio.to_thread(avro.encode, rides, "avro")}
            for topic, values in encoded.items():
                await producer.send_arrow(
                    topic, pa.table({"value": values, "partition": partition}), partition="partition"
                )


def ride(n: int) -> dict[str, Any]:
    rider = None if n % 5 == 0 else f"rider-{n % 999}"
    return {"id": n, "city": ("Oslo", "Turin")[n % 2], "rider": rider, "km": n / 7, "seats": n % 4, "paid": n % 3 == 0}


def ways(place: Place, *, connector: bool, avro: bool) -> dict[tuple[str, str], Callable[[], DataFrame]]:
    """(format, way) -> the DataFrame with the struct `value`."""
    from pyspark.sql import functions

    ddl = spark_ddl(RIDE)
    registry = {"schema.registry.url": place.registry}
    found: dict[tuple[str, str], Callable[[], DataFrame]] = {
        ("json", "ours"): lambda: place.load("barnabas", "json", columns="value", valueFormat="json", valueSchema=ddl),
        ("json", "ours, then from_json"): lambda: place.load("barnabas", "json", columns="value").select(
            functions.from_json(functions.col("value").cast("string"), ddl).alias("value")
        ),
        ("avro", "ours"): lambda: place.load("barnabas", "avro", columns="value", valueFormat="avro", **registry),
    }
    if connector:
        found["json", "connector"] = lambda: place.load("kafka", "json").select(
            functions.from_json(functions.col("value").cast("string"), ddl).alias("value")
        )
    if avro:
        from pyspark.sql.avro.functions import from_avro

        found["avro", "connector"] = lambda: place.load("kafka", "avro").select(
            from_avro(functions.expr("substring(value, 6)"), SCHEMA).alias("value")
        )
    return found


def run(frame: DataFrame, records: int) -> float:
    """Records per second of one pass that uses every field."""
    total = "count(value.rider) + sum(value.id) + sum(value.km) + sum(value.seats) + count_if(value.paid)"
    began = time.monotonic()
    [(count, _, _)] = frame.selectExpr("count(*)", total, "max(value.city)").collect()
    took = time.monotonic() - began
    assert count == records, f"{count} of {records} records were read"
    return records / took


def avro_jars() -> list[Path]:
    """Spark's Avro functions; an empty list without Maven."""
    import pyspark

    for version in (pyspark.__version__, "4.2.0"):
        try:
            folder = resolve(f"org.apache.spark:spark-avro_2.13:{version}", exclude=("*:*",))
        except (subprocess.CalledProcessError, MavenMissingError):
            continue
        return list(folder.glob("spark-avro*.jar"))
    return []


def measure_typed(rounds: int, records: int) -> Sheet:
    """The table: a row for each format and way, with its ratio to Spark's connector where that is at hand."""
    jars = connector_jars()
    avro = avro_jars() if jars else []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = stack.enter_context(BrokerProcess(folder / "broker")).bootstrap_servers
        registry = stack.enter_context(RunningRegistry(servers)).url
        with RegistryClient(registry) as client:
            asyncio.run(fill(servers, client, records))
        spark = start_session([*jars, *avro])
        stack.callback(spark.stop)
        chosen = ways(Place(spark, servers, registry), connector=bool(jars), avro=bool(avro))
        rates: dict[tuple[str, str], list[float]] = {way: [] for way in chosen}
        for round_number in range(rounds + 1):
            for way, make in chosen.items():
                rate = run(make(), records)
                if round_number:
                    rates[way].append(rate)
    median = {way: statistics.median(found) for way, found in rates.items()}
    rows: list[tuple[str, ...]] = []
    for (kind, name), rate in sorted(median.items()):
        peer = median.get((kind, "connector"))
        rows.append((f"{kind}, {name}", f"{rate:,.0f}", "" if peer is None else f"{rate / peer:.1f}x"))
    heading = ("Typed values in Spark", "records/s", "to Spark's connector")
    return Sheet(
        f"Typed values (6 fields, local[2], {PARTITIONS} partitions), median of {rounds} rounds", heading, rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_typed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000, help="records of each topic (%(default)s)")
    chosen = parser.parse_args()
    Console().print(measure_typed(chosen.rounds, chosen.records).render())


if __name__ == "__main__":
    main()
