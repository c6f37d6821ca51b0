"""Each flight with the weather at its airport in the scheduled hour, its plane and its destination, as a topic."""

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()

LATENESS = "3 days"
"""How late events may arrive: partitions are read in parallel, and days have different numbers of flights."""

dp.create_sink(
    "flights_in_weather",
    "barnabas",
    {
        "kafka.bootstrap.servers": os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092"),
        "topic": "flights-in-weather",
    },
)


@dp.append_flow(target="flights_in_weather")
def join_weather():
    # The watermarks are on the hour, which is also a join key, so Spark drops the state of an hour once both streams
    # are past it.
    flights = spark.readStream.table("flights").withColumn("hour", sf.date_trunc("hour", "scheduled"))
    weather = spark.readStream.table("weather").withWatermark("hour", LATENESS)
    joined = (
        flights.withWatermark("hour", LATENESS)
        .join(weather, ["origin", "hour"])
        .join(sf.broadcast(spark.read.table("planes")), "tailnum", "left")
        .join(sf.broadcast(spark.read.table("airports")), "dest", "left")
        .drop("hour")
    )
    return joined.select(sf.col("tailnum").alias("key"), sf.to_json(sf.struct("*")).alias("value"))
