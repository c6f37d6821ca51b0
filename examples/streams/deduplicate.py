"""Events, each once, although their producer sends some of them again within an hour.

Kafka Streams has no operator for this: one writes a processor with a WindowStore of the ids.
"""

from __future__ import annotations

from pathlib import Path

from examples.streams.topics import fields, read_stream, write_stream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

INPUTS, OUTPUT = ("events",), "events-unique"


def drop_repeated(events: DataFrame) -> DataFrame:
    with_id = events.select("key", "value", fields("id string, at timestamp").alias("e")).select("key", "value", "e.*")
    return with_id.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]).select("key", "value")


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    unique = drop_repeated(read_stream(spark, servers, *INPUTS))
    return write_stream(unique, servers, OUTPUT, checkpoint)
