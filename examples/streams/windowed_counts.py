"""Counts for each page and ten minutes of event time, each written once, when no more late views are accepted.

Kafka Streams: views.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(10 min, 5 min)).count()
                    .suppress(untilWindowCloses(unbounded())).toStream().to("page-counts")

The watermark is 5 minutes behind the newest view. A window closes when the watermark has passed its end; a view of a
closed window is dropped.
"""

from __future__ import annotations

from pathlib import Path

from examples.streams.topics import document, fields, read_stream, write_stream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

INPUTS, OUTPUT = ("views",), "page-counts"


def count_views(views: DataFrame) -> DataFrame:
    by_time = views.select("key", fields("at timestamp").alias("view")).select("key", "view.at")
    counts = by_time.withWatermark("at", "5 minutes").groupBy(sf.window("at", "10 minutes"), "key").count()
    start = sf.date_format("window.start", "HH:mm").alias("start")
    return counts.select("key", start, "count").select("key", document("start", "count"))


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    counts = count_views(read_stream(spark, servers, *INPUTS))
    return write_stream(counts, servers, OUTPUT, checkpoint)
