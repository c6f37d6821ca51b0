"""Visits: the views of one user with less than ten minutes between them.

Kafka Streams: views.groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(10 min, 5 min)).count()
                    .suppress(untilWindowCloses(unbounded())).toStream().to("visits")
"""

from __future__ import annotations

from pathlib import Path

from examples.streams.topics import document, fields, read_stream, write_stream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

INPUTS, OUTPUT = ("user-views",), "visits"


def find_visits(views: DataFrame) -> DataFrame:
    by_time = views.select("key", fields("at timestamp").alias("view")).select("key", "view.at")
    visits = by_time.withWatermark("at", "5 minutes").groupBy(sf.session_window("at", "10 minutes"), "key")
    window = sf.col("session_window")
    minutes = ((sf.unix_timestamp(window.end) - sf.unix_timestamp(window.start)) / 60 - 10).cast("int")
    return visits.count().select("key", "count", minutes.alias("minutes")).select("key", document("count", "minutes"))


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    visits = find_visits(read_stream(spark, servers, *INPUTS))
    return write_stream(visits, servers, OUTPUT, checkpoint)
