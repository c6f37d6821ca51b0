"""Impressions of an advertisement, each with the click that follows within ten minutes, or without a click.

Kafka Streams: impressions.leftJoin(clicks, ..., JoinWindows.ofTimeDifferenceAndGrace(10 min, 5 min)).to("ad-results")

An impression without a click is written when the watermark says that none can come any more.
"""

from __future__ import annotations

from pathlib import Path

from examples.streams.topics import document, fields, read_stream, write_stream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

INPUTS, OUTPUT = ("impressions", "clicks"), "ad-results"


def match(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    shown = impressions.select("key", fields("at timestamp").alias("v")).select("key", sf.col("v.at").alias("shown"))
    clicked = clicks.select(sf.col("key").alias("clicked_key"), fields("at timestamp").alias("v"))
    clicked = clicked.select("clicked_key", sf.col("v.at").alias("clicked"))
    joined = shown.withWatermark("shown", "5 minutes").join(
        clicked.withWatermark("clicked", "5 minutes"),
        sf.expr("key = clicked_key and clicked between shown and shown + interval 10 minutes"),
        "left",
    )
    after = (sf.unix_timestamp("clicked") - sf.unix_timestamp("shown")).alias("seconds")
    return joined.select("key", after).select("key", document("seconds"))


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    impressions, clicks = (read_stream(spark, servers, topic) for topic in INPUTS)
    return write_stream(match(impressions, clicks), servers, OUTPUT, checkpoint)
