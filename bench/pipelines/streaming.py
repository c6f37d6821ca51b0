"""Shell: records/s of streaming queries: topic to topic, and a word count beside Kafka Streams.

A query reads what the topic has, in micro-batches of equal size, and ends. The first third of the micro-batches warms
up and is not counted; neither is the first third of the records of Kafka Streams.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Final

from barnabas import Consumer, TopicPartition
from bench.pipelines.batch import PARTITIONS, Bench, Row, sources
from bench.pipelines.peers import kafka_streams, streams_classpath
from bench.spark_read import Load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

BATCHES: Final = 6
WARM_UP: Final = BATCHES // 3
COUNTED: Final = (BATCHES - WARM_UP) / BATCHES
WORDS_PER_LINE: Final = 10
STANDSTILL_S: Final = 120.0


def stream(bench: Bench, source: str, topic: str, records: int) -> DataFrame:
    reader = bench.spark.readStream.format(source).option("kafka.bootstrap.servers", bench.servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", -(-records // BATCHES)).load()


def counted_seconds(writer: DataStreamWriter) -> float:
    """Run a query to its end. Returns the time of its micro-batches after the warm-up, scaled to all records."""
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    durations = [report.batchDuration for report in query.recentProgress if report.numInputRows]
    return sum(durations[WARM_UP:]) / 1000 / ((len(durations) - WARM_UP) / len(durations))


def transforms(bench: Bench, load: Load) -> list[Row]:
    """Topic to topic, with the values in upper case."""

    def copy(source: str, **options: str) -> float:
        target = bench.topic("transformed")
        rows = stream(bench, source, load.topic, load.records).selectExpr(
            "key", "upper(cast(value as string)) as value"
        )
        with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
            writer = rows.writeStream.format(source).option("kafka.bootstrap.servers", bench.servers)
            return counted_seconds(
                writer.option("topic", target).option("checkpointLocation", checkpoint).options(**options)
            )

    contenders = {f'format("{source}")': lambda source=source: copy(source) for source in sources(bench)}
    title = f"read, transform, write {load.size} B, at-least-once"
    return [Row(title, load.records, load.size + 8, contenders, 'format("kafka")')]


def word_counts(bench: Bench, lines: int) -> list[Row]:
    """Words of lines counted, with every change of a count written to a compacted topic."""
    from pyspark.sql import functions as sf

    source = bench.topic("lines")
    words = ", ' ', ".join(f"concat('w', pmod(hash(id, {i}), 5000))" for i in range(WORDS_PER_LINE))
    made = bench.spark.range(0, lines, 1, PARTITIONS).selectExpr(f"concat({words}) as value")
    writer = made.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", bench.servers)
    writer.option("topic", source).save()

    def on_spark(name: str) -> float:
        target = bench.topic("counts", cleanup_policy="compact")

        def upsert(changed: DataFrame, _: int) -> None:
            out = changed.write.format(name).mode("append").option("kafka.bootstrap.servers", bench.servers)
            out.option("topic", target).save()

        split = sf.explode(sf.split(sf.col("value").cast("string"), " ")).alias("key")
        counts = stream(bench, name, source, lines).select(split).groupBy("key").count()
        upserts = counts.select("key", sf.col("count").cast("string").alias("value"))
        with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
            writer = upserts.writeStream.foreachBatch(upsert).outputMode("update")
            return counted_seconds(writer.option("checkpointLocation", checkpoint))

    contenders = {f'Spark, format("{name}")': lambda name=name: on_spark(name) for name in sources(bench)}
    classpath = streams_classpath()
    if classpath is not None:
        contenders["Kafka Streams, exactly_once_v2"] = lambda: count_on_kafka_streams(bench, classpath, source, lines)
    title = "word count, 10 words a line (records: lines)"
    return [Row(title, lines, 5 * WORDS_PER_LINE, contenders, "Kafka Streams, exactly_once_v2")]


def count_on_kafka_streams(bench: Bench, classpath: str, source: str, lines: int) -> float:
    """The time from the first third of the lines to the last one, by the group's offsets, scaled to all lines."""
    target = bench.topic("counts", cleanup_policy="compact")
    with (
        Consumer(bootstrap_servers=bench.servers, group_id=f"peer-{target}", enable_auto_commit=False) as group,
        kafka_streams(classpath, "count", bench.servers, source, target, 100),
    ):
        started, first, changed = 0.0, 0, time.monotonic()
        seen = -1
        while True:
            committed = group.committed([TopicPartition(source, p) for p in range(PARTITIONS)])
            done = sum(offset.offset for offset in committed.values() if offset is not None)
            now = time.monotonic()
            if done != seen:
                seen, changed = done, now
            elif now > changed + STANDSTILL_S:
                raise RuntimeError(f"Kafka Streams stands still after {done} of {lines} lines")
            if not started and done >= lines * (1 - COUNTED):
                started, first = now, done
            if done >= lines:
                return (now - started) * lines / max(lines - first, 1)
            time.sleep(0.02)
