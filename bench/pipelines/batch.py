"""Shell: records/s of batch reads and writes in one Spark session, ours beside Spark's own connector.

Every row is a set of contenders that do the same work with the same data. In each round all of them run once, one after
the other; the first round warms up the JVM and is not counted.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas import Admin
from barnabas.client.values import NewTopic
from bench.servers import cpu_seconds
from bench.spark_read import Load, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS: Final = 4
_numbers = itertools.count()


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    spark: SparkSession
    servers: str
    has_jvm_connector: bool
    broker_pid: int | None = None

    def topic(self, prefix: str, **configs: str) -> str:
        """Create a topic with a name of its own."""
        name = f"{prefix}-{next(_numbers)}"
        given = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 1, given)])
        return name

    def reader(self, source: str, topic: str, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest", **options}
        if given.get("readAs") == "table":
            del given["startingOffsets"]
        return self.spark.read.format(source).options(**given).load()


@dataclass
class Row:
    """One kind of work: its contenders, each of which does it once, and what a record is."""

    title: str
    records: int
    record_bytes: int
    contenders: Mapping[str, Callable[[], object]]
    base: str
    """The contender to which the others are compared."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    broker_cpu: dict[str, list[float]] = field(default_factory=dict)

    def run(self, rounds: int, broker_pid: int | None) -> None:
        for number in range(rounds + 1):
            for name, work in self.contenders.items():
                cpu = cpu_seconds(broker_pid) if broker_pid else 0.0
                began = time.monotonic()
                took = work()
                elapsed = took if isinstance(took, float) else time.monotonic() - began
                if number:
                    self.seconds.setdefault(name, []).append(elapsed)
                    if broker_pid:
                        self.broker_cpu.setdefault(name, []).append(cpu_seconds(broker_pid) - cpu)

    def cells(self) -> list[tuple[str, ...]]:
        """A line for each contender: records/s, MB/s, the broker's CPU, the ratio to the base."""
        lines: list[tuple[str, ...]] = []
        for name, seconds in self.seconds.items():
            rate = self.records / statistics.median(seconds)
            cpu = self.broker_cpu.get(name)
            cost = f"{statistics.median(cpu) / self.records * 1e6:.2f} us" if cpu else ""
            ratio = ""
            if self.base in self.seconds:
                ratio = (
                    f"{statistics.median(b / a for a, b in zip(seconds, self.seconds[self.base], strict=True)):.2f}x"
                )
            megabytes = f"{rate * self.record_bytes / 1e6:,.0f}"
            lines.append((f"{self.title}: {name}", f"{rate:,.0f}", megabytes, cost, ratio))
        return lines


def discard(frame: DataFrame) -> None:
    """Compute every row and every column."""
    frame.write.format("noop").mode("overwrite").save()


def read(bench: Bench, source: str, topic: str, **options: str) -> None:
    """Read every row and every column of a topic."""
    discard(bench.reader(source, topic, **options))


PEER: Final = "Spark's connector"
OURS: Final = "ours"
AT_LEAST_ONCE: Final = "ours, at-least-once"
EXACTLY_ONCE: Final = "ours, exactly-once"


def sources(bench: Bench) -> dict[str, str]:
    """The names of the contenders that read, and their formats. The peer, to which all are compared, is the last."""
    return {OURS: "barnabas"} | ({PEER: "kafka"} if bench.has_jvm_connector else {})


def sinks(bench: Bench) -> dict[str, tuple[str, dict[str, str]]]:
    """The names of the contenders that write, their formats and options. Spark's connector writes at least once."""
    ours = {
        EXACTLY_ONCE: ("barnabas", {"delivery": "exactly-once"}),
        AT_LEAST_ONCE: ("barnabas", {"delivery": "at-least-once"}),
    }
    return ours | ({PEER: ("kafka", {})} if bench.has_jvm_connector else {})


def fill_topics(servers: str, megabytes: int) -> dict[int, Load]:
    """A topic of values of 100 B and one of 1 KB."""
    loads = {size: Load(size, megabytes * 1_000_000 // (size + 8)) for size in (100, 1_000)}
    for load in loads.values():
        asyncio.run(fill(servers, load))
    return loads


def reads(bench: Bench, loads: Mapping[int, Load]) -> list[Row]:
    """A whole topic into Spark's noop sink."""
    rows = []
    for size, load in loads.items():
        contenders: dict[str, Callable[[], object]] = {
            "ours, readFrom=segments": partial(read, bench, "barnabas", load.topic, readFrom="segments")
        }
        for name, source in sources(bench).items():
            contenders[name] = partial(read, bench, source, load.topic)
        rows.append(Row(f"read {size} B", load.records, size + 8, contenders, PEER))
    return rows


def writes(bench: Bench, megabytes: int) -> list[Row]:
    """Rows that the JVM generates, into a topic."""
    rows = []
    for size in (100, 1_000):
        count = megabytes * 1_000_000 // (size + 8)
        frame = bench.spark.range(0, count, 1, PARTITIONS).selectExpr(
            "cast(lpad(id, 8, '0') as binary) as key", f"cast(repeat('abcde', {size // 5}) as binary) as value"
        )
        contenders: dict[str, Callable[[], object]] = {
            name: partial(write, bench, source, frame, options) for name, (source, options) in sinks(bench).items()
        }
        rows.append(Row(f"write {size} B", count, size + 8, contenders, PEER))
    return rows


def write(bench: Bench, source: str, frame: DataFrame, options: Mapping[str, str]) -> float:
    """Write to a new topic. Returns the seconds without its creation."""
    topic = bench.topic("written")
    began = time.monotonic()
    writer = frame.write.format(source).mode("append").option("kafka.bootstrap.servers", bench.servers)
    writer.option("topic", topic).options(**options).save()
    return time.monotonic() - began


def tables(bench: Bench, records: int, keys: int) -> list[Row]:
    """The newest value of each key of a compacted topic. Spark's connector needs an aggregation for it."""
    from pyspark.sql import functions as sf

    topic = bench.topic("table", cleanup_policy="compact")
    frame = bench.spark.range(0, records, 1, PARTITIONS).selectExpr(
        f"cast(lpad((id * 7919) % {keys}, 8, '0') as binary) as key", "cast(repeat('abcde', 20) as binary) as value"
    )
    writer = frame.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", bench.servers)
    writer.option("topic", topic).save()

    def aggregate(source: str) -> None:
        newest = bench.reader(source, topic).groupBy("key").agg(sf.max_by("value", "offset").alias("value"))
        discard(newest.where("value is not null"))

    contenders: dict[str, Callable[[], object]] = {
        "ours, readAs=table": lambda: discard(bench.reader("barnabas", topic, readAs="table").select("key", "value"))
    }
    for name, source in sources(bench).items():
        contenders[f"{name}, max_by"] = partial(aggregate, source)
    return [Row(f"table of {keys:,} keys", records, 108, contenders, f"{PEER}, max_by")]
