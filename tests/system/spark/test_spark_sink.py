"""Writing: rows to records and back, by batch and by stream, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from barnabas.client.values import IsolationLevel
from barnabas.core.hashing import partition_for_key
from tests.progress import wait_until
from tests.system.spark.broker import Topics, committed, values

Options = dict[str, str]


def save(frame: DataFrame, servers: str, **options: str) -> None:
    frame.write.format("barnabas").option("kafka.bootstrap.servers", servers).options(**options).mode("append").save()


def read(spark: SparkSession, options: Options, *columns: str) -> list[tuple[object, ...]]:
    frame = spark.read.format("barnabas").options(**options, includeHeaders="true").load()
    return [tuple(row) for row in frame.orderBy("partition", "offset").select(*columns).collect()]


@pytest.mark.system
def test_every_column(spark: SparkSession, topics: Topics, servers: str, options: Options, topic: str) -> None:
    topics.create(topic, 3)
    ddl = "key binary, value string, topic string, partition int, headers array<struct<key:string,value:binary>>"
    rows = [
        (b"a", "one", topic, 2, [("h", b"1"), ("h", None)]),
        (None, None, topic, 0, None),
        (b"", "", topic, 2, []),
    ]
    save(spark.createDataFrame(rows, ddl).coalesce(1), servers)
    assert read(spark, options, "key", "value", "partition", "headers") == [
        (None, None, 0, None),
        (b"a", b"one", 2, [("h", b"1"), ("h", None)]),
        (b"", b"", 2, None),
    ]


@pytest.mark.system
def test_keys_go_where_kafkas_partitioner_puts_them(
    spark: SparkSession, topics: Topics, servers: str, options: Options, topic: str
) -> None:
    topics.create(topic, 5)
    frame = spark.range(50_000).selectExpr("CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value")
    save(frame, servers, topic=topic, **{"kafka.compression.type": "lz4"})
    written = read(spark, options, "key", "value", "partition")
    assert len(written) == 50_000
    assert all(partition_for_key(key, 5) == partition for key, _, partition in written)
    assert {(int(key), int(value)) for key, value, _ in written} == {(i, 2 * i) for i in range(50_000)}


def test_rows_name_their_topics(spark: SparkSession, topics: Topics, servers: str, topic: str) -> None:
    for name in ("even", "odd"):
        topics.create(f"{topic}.{name}")
    frame = spark.range(0, 1000, 1, 2).select(
        sf.col("id").cast("string").alias("value"),
        sf.concat(sf.lit(topic), sf.when(sf.col("id") % 2 == 0, ".even").otherwise(".odd")).alias("topic"),
    )
    save(frame, servers)
    for first, name in enumerate(("even", "odd")):
        found = read(spark, {"kafka.bootstrap.servers": servers, "subscribe": f"{topic}.{name}"}, "value")
        assert sorted(int(value) for (value,) in found) == list(range(first, 1000, 2))


@pytest.mark.parametrize(
    ("select", "more", "says"),
    [
        (["CAST(id AS STRING) AS key"], {"topic": "t"}, "required column 'value' not found"),
        (["id AS value"], {"topic": "t"}, "'value' has type bigint"),
        (["CAST(id AS STRING) AS value"], {}, "no topic"),
        (["CAST(id AS STRING) AS value", "CAST(NULL AS STRING) AS topic"], {}, "a row has no topic"),
        (["CAST(id AS STRING) AS value"], {"topic": "t", "kafka.value.serializer": "x"}, "not supported"),
    ],
)
def test_refusals(spark: SparkSession, servers: str, select: list[str], more: Options, says: str) -> None:
    with pytest.raises(Exception, match=says):
        save(spark.range(1).selectExpr(*select), servers, **more)


@pytest.mark.system
def test_a_partition_that_does_not_exist(spark: SparkSession, topics: Topics, servers: str, topic: str) -> None:
    topics.create(topic)
    frame = spark.range(1).selectExpr("'v' AS value", "7 AS partition")
    with pytest.raises(Exception, match="partition"):
        save(frame, servers, topic=topic)


def test_overwriting_is_refused(spark: SparkSession, servers: str) -> None:
    writer = spark.range(1).selectExpr("'v' AS value").write.format("barnabas").option("topic", "t")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.option("kafka.bootstrap.servers", servers).mode("overwrite").save()


@pytest.mark.system
def test_a_stream_from_topic_to_topic(
    spark: SparkSession, topics: Topics, servers: str, options: Options, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2)
    target = f"{topic}.out"
    topics.create(target, 2, cleanup_policy="compact")
    topics.produce(topic, [*values(500), *values(500, start=500, partition=1)])

    def run() -> None:
        counts = (
            spark.readStream.format("barnabas")
            .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="300")
            .load()
            .groupBy((sf.col("value").cast("string").cast("int") % 10).alias("digit"))
            .count()
        )
        query = (
            counts.selectExpr("CAST(digit AS STRING) AS key", "to_json(struct(*)) AS value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .outputMode("complete")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    def newest() -> dict[int, int]:
        found = read(spark, {**options, "subscribe": target}, "value")
        return {row["digit"]: row["count"] for row in (json.loads(value) for (value,) in found)}  # type: ignore[arg-type]

    run()
    assert newest() == dict.fromkeys(range(10), 100)
    topics.produce(topic, values(10))
    run()
    assert newest() == dict.fromkeys(range(10), 101)


@pytest.mark.system
@pytest.mark.usefixtures("transactions")
def test_a_query_stopped_in_a_micro_batch_leaves_no_transaction_open(
    spark: SparkSession, topics: Topics, servers: str, options: Options, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    target = f"{topic}.out"
    topics.create(target)
    topics.produce(topic, values(1))
    gate = tmp_path / "gate"
    rows = 30_000

    def wait_at_the_end(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        while not gate.exists():
            time.sleep(0.1)  # this runs in a worker of Spark, which the test can reach by a file only

    def start() -> StreamingQuery:
        numbers = spark.readStream.format("barnabas").options(**options, startingOffsets="earliest").load()
        wide = numbers.selectExpr(f"explode(sequence(1, {rows})) AS n").selectExpr("lpad(n, 500, '0') AS value")
        writer = wide.mapInArrow(wait_at_the_end, "value string").writeStream.format("barnabas")
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", target)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start()
    wait_until(lambda: topics.end(target, IsolationLevel.READ_UNCOMMITTED) > 0, "the task has written rows")
    assert topics.end(target, IsolationLevel.READ_COMMITTED) == 0, "the transaction is open"
    query.stop()
    end = topics.end(target, IsolationLevel.READ_UNCOMMITTED)
    assert topics.end(target, IsolationLevel.READ_COMMITTED) == end
    assert committed(servers, target) == []
    gate.touch()
    query = start()
    query.processAllAvailable()
    query.stop()
    assert sorted(committed(servers, target)) == [b"%0500d" % n for n in range(1, rows + 1)]  # type: ignore[type-var]


def test_a_stream_to_a_cluster_that_never_answered_fails_before_its_tasks(spark: SparkSession, tmp_path: Path) -> None:
    query = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("topic", "t")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(Exception, match="RecoveryError: no micro-batch begins") as failed:
        query.awaitTermination(240)
    assert "Could not serialize object" not in str(failed.value)
