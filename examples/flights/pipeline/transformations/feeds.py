"""The two topics as streams of typed rows, and the tables that do not change."""

import os
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")
TABLES = Path("tables").resolve()  # files are loaded in the directory of the spec

FLIGHT = """scheduled timestamp, carrier string, flight int, tailnum string, origin string, dest string,
            dep_delay int, arr_delay int, distance int, status string"""
WEATHER = "hour timestamp, origin string, temp double, wind_speed double, precip double, visib double"


def read_topic(topic, schema):
    """A topic of JSON documents as a stream of typed rows."""
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60_000)
        .option("columns", "value")  # the other columns are not used, so they are not read
        .load()
    )
    return records.select(sf.from_json(sf.col("value").cast("string"), schema).alias("row")).select("row.*")


@dp.temporary_view
def flights():
    """The flights that have left or are cancelled. The topic also has them as they were before, when scheduled."""
    return read_topic("flights", FLIGHT).where("status <> 'scheduled'").drop("status")


@dp.temporary_view
def weather():
    return read_topic("weather", WEATHER)


@dp.temporary_view
def airlines():
    return spark.read.parquet(str(TABLES / "airlines.parquet"))


@dp.temporary_view
def planes():
    return spark.read.parquet(str(TABLES / "planes.parquet"))


@dp.temporary_view
def airports():
    return spark.read.parquet(str(TABLES / "airports.parquet"))
