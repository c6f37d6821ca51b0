"""Shell: records/s of streaming queries: topic to topic, and a word count beside Kafka Streams.

A query reads what the topic has, in micro-batches of equal size, and ends. The first third of the micro-batches warms
up and is not counted; neither is the first third of the records of Kafka Streams.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas import Admin, KafkaError
from bench.pipelines.batch import AT_LEAST_ONCE, EXACTLY_ONCE, PARTITIONS, PEER, Bench, Row, sinks
from bench.pipelines.peers import kafka_streams, streams_classpath
from bench.report import Sheet
from bench.spark_read import Load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.streaming.listener import StreamingQueryProgress

BATCHES: Final = 6
WARM_UP: Final = BATCHES // 3
COUNTED: Final = (BATCHES - WARM_UP) / BATCHES
WORDS_PER_LINE: Final = 10
KAFKA_STREAMS: Final = "Kafka Streams, exactly_once_v2"
SMALL_BATCHES: Final = 30
SMALL_BATCH: Final = 100
"""The records of a small micro-batch."""
SETTLED_S: Final = 3.0
"""A Kafka Streams program has finished when its offsets have not changed for so long."""
STANDSTILL_S: Final = 120.0


def stream(bench: Bench, source: str, topic: str, per_batch: int) -> DataFrame:
    reader = bench.spark.readStream.format(source).option("kafka.bootstrap.servers", bench.servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", per_batch).load()


def durations_ms(writer: DataStreamWriter) -> list[int]:
    """Run a query until it has read everything. Returns the times of its micro-batches."""
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        reports: list[StreamingQueryProgress] = query.recentProgress
        return [report.batchDuration for report in reports if report.numInputRows]


def counted_seconds(durations: list[int]) -> float:
    """The time of the micro-batches after the warm-up, scaled to all records."""
    return sum(durations[WARM_UP:]) / 1000 / ((len(durations) - WARM_UP) / len(durations))


def transforms(bench: Bench, load: Load) -> list[Row]:
    """Topic to topic, with the values in upper case."""

    def copy(source: str, options: Mapping[str, str]) -> float:
        return counted_seconds(_copy(bench, load.topic, source, options, -(-load.records // BATCHES)))

    contenders: dict[str, Callable[[], object]] = {
        name: partial(copy, source, options) for name, (source, options) in sinks(bench).items()
    }
    return [Row(f"read, transform, write {load.size} B", load.records, load.size + 8, contenders, PEER)]


def _copy(bench: Bench, topic: str, source: str, options: Mapping[str, str], per_batch: int) -> list[int]:
    """Copy a topic, with the values in upper case. Returns the times of the micro-batches in ms."""
    target = bench.topic("transformed")
    rows = stream(bench, source, topic, per_batch).selectExpr("key", "upper(cast(value as string)) as value")
    writer = rows.writeStream.format(source).option("kafka.bootstrap.servers", bench.servers)
    return durations_ms(writer.option("topic", target).options(**options))


def small_topic(bench: Bench) -> str:
    """A topic of records for SMALL_BATCHES micro-batches."""
    topic = bench.topic("small")
    made = bench.spark.range(0, SMALL_BATCH * SMALL_BATCHES, 1, PARTITIONS).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )
    writer = made.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", bench.servers)
    writer.option("topic", topic).save()
    return topic


def batch_times(bench: Bench, topic: str, rounds: int) -> Sheet:
    """The time of a micro-batch of a hundred records, and what exactly-once delivery adds to it."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, (source, options) in sinks(bench).items():
            durations = _copy(bench, topic, source, options, SMALL_BATCH)
            found.setdefault(name, []).append(statistics.median(durations[len(durations) // 3 :]))
    rows: list[tuple[str, ...]] = []
    for name, medians in found.items():
        added = statistics.median(a - b for a, b in zip(medians, found[AT_LEAST_ONCE], strict=True))
        rows.append((name, f"{statistics.median(medians):.0f} ms", f"{added:+.0f} ms" if name == EXACTLY_ONCE else ""))
    title = f"A micro-batch of {SMALL_BATCH} records, topic to topic, median of {rounds} rounds"
    return Sheet(title, ("", "time", "added to at-least-once"), rows)


def word_counts(bench: Bench, lines: int) -> list[Row]:
    """Words of lines counted, with every change of a count written to a compacted topic."""
    from pyspark.sql import functions as sf

    source = bench.topic("lines")
    words = ", ' ', ".join(f"concat('w', pmod(hash(id, {i}), 5000))" for i in range(WORDS_PER_LINE))
    made = bench.spark.range(0, lines, 1, PARTITIONS).selectExpr(f"concat({words}) as value")
    writer = made.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", bench.servers)
    writer.option("topic", source).save()

    def on_spark(name: str, options: Mapping[str, str]) -> float:
        target = bench.topic("counts", cleanup_policy="compact")

        def upsert(changed: DataFrame, _: int) -> None:
            out = changed.write.format(name).mode("append").option("kafka.bootstrap.servers", bench.servers)
            out.option("topic", target).options(**options).save()

        split = sf.explode(sf.split(sf.col("value").cast("string"), " ")).alias("key")
        counts = stream(bench, name, source, -(-lines // BATCHES)).select(split).groupBy("key").count()
        upserts = counts.select("key", sf.col("count").cast("string").alias("value"))
        return counted_seconds(durations_ms(upserts.writeStream.foreachBatch(upsert).outputMode("update")))

    contenders: dict[str, Callable[[], object]] = {
        f"Spark, {name}": partial(on_spark, source, options) for name, (source, options) in sinks(bench).items()
    }
    classpath = streams_classpath()
    if classpath is not None:
        contenders[KAFKA_STREAMS] = partial(count_on_kafka_streams, bench, classpath, source, lines)
    title = f"word count, {WORDS_PER_LINE} words a line, lines"
    return [Row(title, lines, 5 * WORDS_PER_LINE, contenders, KAFKA_STREAMS)]


def count_on_kafka_streams(bench: Bench, classpath: str, source: str, lines: int) -> float:
    """The time in which the words after the first third are counted, scaled to all words.

    The words pass a repartition topic, and the group's offsets there say how many are counted and committed.
    """
    target = bench.topic("counts", cleanup_policy="compact")
    words = lines * WORDS_PER_LINE
    with (
        Admin(bootstrap_servers=bench.servers) as admin,
        kafka_streams(classpath, "count", bench.servers, source, target, 100),
    ):
        began = changed = time.monotonic()
        first = seen = 0
        while True:
            offsets = admin.list_group_offsets(f"peer-{target}")
            repartitioned = [at for partition, at in offsets.items() if partition.topic != source]
            done = sum(at.offset for at in repartitioned if not isinstance(at, KafkaError))
            now = time.monotonic()
            if done != seen:
                seen, changed = done, now
                if not first and done >= words * (1 - COUNTED):
                    first, began = done, now
            elif done >= words and now > changed + SETTLED_S:
                return (changed - began) * done / (done - first)
            elif now > changed + STANDSTILL_S:
                raise RuntimeError(f"Kafka Streams stands still after {done:,} of {words:,} words")
            time.sleep(0.05)
