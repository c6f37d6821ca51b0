"""The pipeline: two topics in, a compacted topic and a Parquet table out. Plain PySpark, meant to be copied.

topic flights ──┬─ per day and airline ───────── ⋈ airlines ─────────► topic delays (compacted, upserts)
                └─ ⋈ weather of the same hour ── ⋈ planes, airports ─► Parquet flights_in_weather (append)
topic weather ──┘
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

FLIGHT = """scheduled timestamp, carrier string, flight int, tailnum string, origin string, dest string,
            dep_delay int, arr_delay int, distance int"""
WEATHER = "hour timestamp, origin string, temp double, wind_speed double, precip double, visib double"
DELAY = "day date, carrier string, airline string, flights long, cancelled long, departed long, delay_minutes long"

LATENESS = "3 days"
"""How late events may arrive: partitions are read in parallel, and days have different numbers of flights."""


def read_topic(spark: SparkSession, servers: str, topic: str, schema: str, per_batch: int) -> DataFrame:
    """A topic of JSON documents as a stream of typed rows."""
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .option("columns", "value")  # the other columns are not used, so they are not read
        .option("groupId", f"demo-{topic}")  # `barnabas groups describe` shows the query's progress for this group
        .load()
        .select(sf.from_json(sf.col("value").cast("string"), schema).alias("row"))
        .select("row.*")
    )


def delays_by_day(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Flights, cancellations and minutes of delay for each airline and day."""
    return (
        flights.withWatermark("scheduled", LATENESS)
        .groupBy(sf.window("scheduled", "1 day"), "carrier")
        .agg(
            sf.count("*").alias("flights"),
            sf.count_if(sf.col("dep_delay").isNull()).alias("cancelled"),
            sf.count("dep_delay").alias("departed"),
            sf.coalesce(sf.sum("dep_delay"), sf.lit(0)).alias("delay_minutes"),
        )
        .join(sf.broadcast(airlines), "carrier")
        .select(sf.col("window.start").cast("date").alias("day"), "*")
        .drop("window")
    )


def flights_in_weather(flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame) -> DataFrame:
    """Each flight with the weather at its airport in the scheduled hour, its plane and its destination."""
    # The watermarks are on the hour, which is also a join key, so Spark drops the state of an hour once both streams
    # are past it.
    flights = flights.withColumn("hour", sf.date_trunc("hour", "scheduled")).withWatermark("hour", LATENESS)
    weather = weather.withWatermark("hour", LATENESS)
    return (
        flights.join(weather, ["origin", "hour"])
        .join(sf.broadcast(planes), "tailnum", "left")
        .join(sf.broadcast(airports), "dest", "left")
        .drop("hour")
    )


def to_upserts(table: DataFrame, *keys: str) -> DataFrame:
    """Rows as records of a compacted topic, in which the newest record of a key replaces the older ones."""
    return table.select(
        sf.concat_ws("|", *keys).alias("key"),
        sf.to_json(sf.struct("*")).alias("value"),
    )


def start(spark: SparkSession, servers: str, out: Path, per_batch: int) -> Mapping[str, StreamingQuery]:
    """Start both queries. They read all records that the topics have now, in micro-batches, and then end."""
    tables = {path.stem: spark.read.parquet(str(path)) for path in (out / "tables").glob("*.parquet")}
    flights = read_topic(spark, servers, "flights", FLIGHT, per_batch)
    weather = read_topic(spark, servers, "weather", WEATHER, per_batch)

    def upsert_delays(changed: DataFrame, batch_id: int) -> None:
        records = to_upserts(changed, "day", "carrier").write.format("barnabas").mode("append")
        records.option("kafka.bootstrap.servers", servers).option("topic", "delays").save()

    delays = (
        delays_by_day(flights, tables["airlines"])
        .writeStream.queryName("delays")
        .foreachBatch(upsert_delays)  # in update mode, every micro-batch has the rows that it changed
        .option("checkpointLocation", str(out / "checkpoints" / "delays"))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    enriched = (
        flights_in_weather(flights, weather, tables["planes"], tables["airports"])
        .writeStream.queryName("flights_in_weather")
        .format("parquet")
        .option("path", str(out / "flights_in_weather"))
        .option("checkpointLocation", str(out / "checkpoints" / "flights_in_weather"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    return {"delays": delays, "flights_in_weather": enriched}


def read_delays(spark: SparkSession, servers: str) -> DataFrame:
    """The compacted topic as a table: the newest record of each key."""
    records = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "delays")
        .option("columns", "key,value,offset")
        .load()
    )
    newest = records.groupBy("key").agg(sf.max_by("value", "offset").cast("string").alias("value"))
    return newest.select(sf.from_json("value", DELAY).alias("row")).select("row.*")
