"""A compacted topic as a table, and its changes as a stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.progress import wait_until
from tests.system.spark.broker import Record, Topics

Options = dict[str, str]
Rows = dict[bytes, bytes]


def table(spark: SparkSession, options: Options, **more: str) -> DataFrame:
    return spark.read.format("barnabas").options(**{**options, "readAs": "table", **more}).load()


def contents(frame: DataFrame) -> Rows:
    found = frame.select("key", "value").collect()
    assert len({bytes(row.key) for row in found}) == len(found), "a key has several rows"
    return {bytes(row.key): bytes(row.value) for row in found}


def changes(pairs: list[tuple[str, str | None]]) -> list[Record]:
    """Records of a topic of two partitions; a key's last letter decides on the partition."""
    return [Record(None if v is None else v.encode(), k.encode(), ord(k[-1]) % 2) for k, v in pairs]


def test_table_is_exact_as_of_its_end(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic, 2, cleanup_policy="compact")
    pairs: list[tuple[str, str | None]] = [(f"k{i % 500}", f"{i}" * 5) for i in range(5_000)]
    topics.produce(topic, changes(pairs), compression_type="lz4")
    expected = {k.encode(): v.encode() for k, v in pairs if v is not None}
    assert contents(table(spark, options)) == expected

    topics.produce(topic, changes([("k7", None), ("k8", None), ("k8", "again"), ("new", "1")]))
    now = expected | {b"k8": b"again", b"new": b"1"}
    del now[b"k7"]
    frame = table(spark, options, minPartitions="8", maxRecordsPerPartition="10")  # one task per partition in any case
    assert frame.rdd.getNumPartitions() == 2
    assert contents(frame) == now
    assert {row.changeType for row in frame.select("changeType").distinct().collect()} == {"upsert"}
    ends = {topic: {"0": sum(ord(k[-1]) % 2 == 0 for k, _ in pairs), "1": sum(ord(k[-1]) % 2 for k, _ in pairs)}}
    assert contents(table(spark, options, endingOffsets=json.dumps(ends))) == expected


@pytest.mark.usefixtures("transactions")
def test_table_of_committed_records(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic, 2, cleanup_policy="compact")
    topics.transaction(topic, changes([("a", "1"), ("b", "2"), ("c", "3")]), commit=True)
    topics.transaction(topic, changes([("a", "wrong"), ("b", None), ("d", "wrong")]), commit=False)
    everything = {"kafka.isolation.level": "read_uncommitted"}
    assert contents(table(spark, options)) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert contents(table(spark, options, **everything)) == {b"a": b"wrong", b"c": b"3", b"d": b"wrong"}


@pytest.mark.system
def test_changes_keep_a_copy_equal(
    spark: SparkSession, topics: Topics, options: Options, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, 2, cleanup_policy="compact")
    copy: Rows = {}
    sizes: list[int] = []

    def merge(batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        sizes.append(len(rows))
        assert len({bytes(row.key) for row in rows}) == len(rows), "a key has several changes in one batch"
        for row in rows:
            assert row.changeType == ("delete" if row.value is None else "upsert")
            if row.changeType == "delete":
                copy.pop(bytes(row.key), None)
            else:
                copy[bytes(row.key)] = bytes(row.value)

    def run() -> None:
        stream = spark.readStream.format("barnabas").options(**options, readAs="table", maxOffsetsPerTrigger="60")
        query = (
            stream.load()
            .writeStream.foreachBatch(merge)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240), "the query does not end"

    topics.produce(topic, changes([(f"k{i % 10}", f"{i}") for i in range(200)]))
    run()
    assert copy == contents(table(spark, options))
    assert sum(sizes) < 200, "each batch has a key once"
    topics.produce(topic, changes([("k1", None), ("k2", "x"), ("k2", None), ("k3", None), ("k3", "back")]))
    run()
    expected = contents(table(spark, options))
    assert copy == expected
    assert b"k1" not in expected
    assert expected[b"k3"] == b"back"


def test_a_loaded_table_stays_as_it_was_also_in_a_join_with_a_stream(
    spark: SparkSession, topics: Topics, options: Options, servers: str, topic: str, tmp_path: Path
) -> None:
    """Spark plans the read of each `load()` once."""
    orders = f"{topic}.orders"
    for name in (topic, orders):
        topics.create(name)
    topics.produce(topic, [Record(b"Anna", b"a")])
    names = table(spark, options).selectExpr("key", "CAST(value AS STRING) AS name")
    stream = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers)
    stream = stream.option("subscribe", orders).option("startingOffsets", "earliest").load()
    joined = stream.select("key", "offset").join(names, "key")
    query = joined.writeStream.format("memory").queryName("joined").outputMode("append")
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for number, name in enumerate((b"Anna", b"Berta")):
            topics.produce(topic, [Record(name, b"a")])
            topics.produce(orders, [Record(b"order", b"a")])
            wait_until(lambda rows=number: running.exception() or spark.table("joined").count() > rows, "order joined")
        assert [row.name for row in spark.table("joined").orderBy("offset").collect()] == ["Anna", "Anna"]
        assert [row.name for row in names.collect()] == ["Anna"]
        assert contents(table(spark, options)) == {b"a": b"Berta"}
    finally:
        running.stop()
