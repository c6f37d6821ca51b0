"""Word count: groupBy(word).count() on a stream, as a compacted topic of counts.

Kafka Streams: lines.flatMapValues(split).groupBy((k, word) -> word).count().toStream().to("counts")
"""

from __future__ import annotations

from pathlib import Path

from examples.streams.topics import read_stream, upsert_stream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

INPUTS, OUTPUT = ("lines",), "word-counts"


def count_words(lines: DataFrame) -> DataFrame:
    words = lines.select(sf.explode(sf.split(sf.lower("value"), r"\W+")).alias("key")).where("key != ''")
    return words.groupBy("key").count().select("key", sf.col("count").cast("string").alias("value"))


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    return upsert_stream(count_words(read_stream(spark, servers, *INPUTS)), servers, OUTPUT, checkpoint)
