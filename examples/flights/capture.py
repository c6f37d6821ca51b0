"""Writes the flights of the database, and each change of them, to the topic `flights`: a Spark job that polls.

    python -m examples.flights.capture DATABASE SERVERS DIRECTORY

The job runs until the file DIRECTORY/finish exists, and then reads what is left. It may be killed and started again at
any moment: each change is in the topic once.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from barnabas.spark.environment import prepare_environment

COLUMNS = "scheduled, carrier, flight, tailnum, origin, dest, dep_delay, arr_delay, distance, status"


def main(database: str, servers: str, directory: str) -> None:
    prepare_environment()
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    flights = (
        spark.readStream.format("barnabas.sqlite")
        .option("connection.url", f"jdbc:sqlite:{database}")
        .option("table.whitelist", "flights")
        .option("mode", "timestamp+incrementing")
        .option("timestamp.column.name", "changed")
        .option("incrementing.column.name", "id")
        .option("poll.interval.ms", 200)
        .option("output", "rows")
        .option("stagingLocation", f"{directory}/staging")
        .load()
    )
    records = flights.selectExpr("coalesce(tailnum, '') AS key", f"to_json(struct({COLUMNS})) AS value")
    writer = (
        records.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "flights")
        .option("checkpointLocation", f"{directory}/checkpoint")
    )
    query = writer.trigger(processingTime="200 milliseconds").start()
    while query.isActive and not Path(directory, "finish").exists():
        time.sleep(0.1)
    if query.isActive:
        query.stop()
    else:
        query.awaitTermination()  # raises what ended it
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
