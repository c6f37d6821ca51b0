"""Interactive queries: what is the count of a word now, which words are the most frequent, and what changes?

Kafka Streams: streams.store(fromNameAndType("counts", keyValueStore())).get(word), .all(), .range(...)

A Kafka Streams program answers such queries itself, from the stores of its instances. Here the result is a compacted
topic, which any program may read: as a table (each action sees the table as of its own start), or as a stream of
changes.
"""

from __future__ import annotations

from examples.streams.topics import read_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf


def counts(spark: SparkSession, servers: str) -> DataFrame:
    """All words with their counts, as of now."""
    return read_table(spark, servers, "word-counts").select("key", sf.col("value").cast("long").alias("count"))


def count_of(spark: SparkSession, servers: str, word: str) -> int:
    """The count of one word: `store.get(word)`."""
    found = counts(spark, servers).where(sf.col("key") == word).first()
    return 0 if found is None else int(found["count"])


def most_frequent(spark: SparkSession, servers: str, limit: int) -> list[str]:
    """The most frequent words. A key-value store has no such query: a program would iterate over `store.all()`."""
    return [row.key for row in counts(spark, servers).orderBy(sf.desc("count"), "key").limit(limit).collect()]


def changes(spark: SparkSession, servers: str) -> DataFrame:
    """The table, and then its changes, as a stream with the columns key, value and changeType."""
    stream = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers)
    return stream.option("subscribe", "word-counts").option("readAs", "table").load()
