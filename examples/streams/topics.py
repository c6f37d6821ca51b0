"""Topics as streams and tables, and streams as topics. The other examples have no options but these."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

from barnabas import Admin
from barnabas.client.values import NewTopic
from barnabas.spark.environment import prepare_environment

TABLES: Final = frozenset({"word-counts", "customers", "countries", "rates"})
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The state store that transformWithState needs. It keeps state on the disk, as Kafka Streams does."""


def start_session() -> SparkSession:
    prepare_environment()
    session: SparkSession = (
        SparkSession.builder.master("local[*]")
        .appName("streams")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 4)
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.ui.enabled", False)
        .getOrCreate()
    )
    return session


def create_topics(servers: str, names: Iterable[str], partitions: int = 4) -> None:
    """Create the topics that do not exist."""
    with Admin(bootstrap_servers=servers) as admin:
        present = {topic.name for topic in admin.list_topics()}
        admin.create_topics(
            NewTopic(name, partitions, 1, {"cleanup.policy": "compact"} if name in TABLES else {})
            for name in names
            if name not in present
        )


def read_stream(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """A topic as a stream (KStream): the columns key and value are strings, timestamp is the record's time."""
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.select(
        sf.col("key").cast("string"), sf.col("value").cast("string"), "timestamp", "partition", "offset"
    )


def read_table(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """A compacted topic as a table (KTable): the newest value of each key. A record without a value (a tombstone)
    deletes its key."""
    table = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("readAs", "table")
        .load()
    )
    return table.select(sf.col("key").cast("string"), sf.col("value").cast("string"))


def fields(schema: str) -> Column:
    """The column value, a JSON document, as a struct."""
    return sf.from_json(sf.col("value").cast("string"), schema)


def document(*columns: str) -> Column:
    """Columns as one JSON document, named value."""
    return sf.to_json(sf.struct(*columns)).alias("value")


def write_stream(records: DataFrame, servers: str, topic: str, checkpoint: Path) -> DataStreamWriter:
    """Append the columns key and value to a topic, exactly once (the default of streams)."""
    return (
        records.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
    )


def upsert_stream(records: DataFrame, servers: str, topic: str, checkpoint: Path) -> DataStreamWriter:
    """Write the rows that each micro-batch has changed to a compacted topic, as a KTable's changes are written.

    Spark does not let a sink that is written in Python have output mode update, so each micro-batch is written as a
    batch. A micro-batch that is repeated writes the same values for the same keys again.
    """

    def write(changed: DataFrame, batch_id: int) -> None:
        changed.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", servers).option(
            "topic", topic
        ).save()

    return records.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint)).outputMode("update")
