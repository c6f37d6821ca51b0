"""kill -9: of the broker under a running query, and of the whole driver in the middle of a micro-batch."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.core.child_processes import start_child
from barnabas.spark.connection import LogClient
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.system.spark.broker import Topics, values

pytestmark = pytest.mark.slow


def count(spark: SparkSession, path: Path) -> int:
    """Rows in a Parquet sink that another process may just be writing."""
    return spark.read.schema("value binary").parquet(str(path)).count() if (path / "_spark_metadata").exists() else 0


def test_a_query_outlives_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    def written() -> int:
        return count(spark, tmp_path / "rows")

    with BrokerProcess(tmp_path / "broker") as broker:
        client = LogClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = Topics(broker.bootstrap_servers, client)
        topics.create("t", 2)
        topics.produce("t", [*values(500), *values(500, start=500, partition=1)])
        query = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", "t")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 200)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            wait_until(lambda: written() >= 200, "200 rows are written", progress=written)
            broker.kill()
            broker.start()
            topics.produce("t", values(500, start=1000))
            wait_until(lambda: written() >= 1500 or not query.isActive, "all rows are written", progress=written)
            assert query.exception() is None
        finally:
            query.stop()
            client.close()
    rows = spark.read.parquet(str(tmp_path / "rows")).selectExpr("CAST(CAST(value AS STRING) AS INT)").collect()
    assert sorted(row[0] for row in rows) == list(range(1500))


DRIVER = """
    import sys
    from barnabas.spark.environment import prepare_environment

    prepare_environment()
    from pyspark.sql import SparkSession

    servers, topic, folder, starting = sys.argv[1:]
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    stream = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", 50)
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", folder + "/rows")
        .option("checkpointLocation", folder + "/checkpoint")
        .start()
    )
    query.awaitTermination()
"""


def test_a_driver_killed_at_any_moment_loses_and_doubles_nothing(
    spark: SparkSession, topics: Topics, servers: str, topic: str, tmp_path: Path
) -> None:
    """The first one is killed while it is still on its first micro-batch, or before; it began at `latest`."""

    def written() -> int:
        assert driver.poll() is None, f"the driver has ended:\n{log.read_text()[-4000:]}"
        return count(spark, tmp_path / "rows")

    log = tmp_path / "driver.log"
    topics.create(topic, 2)
    topics.produce(topic, values(50))
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    offsets = tmp_path / "checkpoint" / "offsets" / "0"
    produced = 50
    for kill_at in (0, 200):
        command = [sys.executable, str(script), servers, topic, str(tmp_path), "latest"]
        driver = start_child(command, start_new_session=True, stderr=log.open("wb"))
        try:
            wait_until(offsets.exists, "the first micro-batch begins")
            if kill_at:  # the first driver is killed at once
                wait_until(lambda at=kill_at: written() >= at, "the row of the kill is written", progress=written)  # type: ignore[misc]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # the driver and its JVM; Python workers end with it
            driver.wait()
        topics.produce(topic, values(300, start=produced, partition=produced % 2))
        produced += 300
    driver = start_child(command, start_new_session=True, stderr=log.open("wb"))
    try:
        wait_until(lambda: written() >= produced - 50, "all rows are written", progress=written)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    rows = spark.read.parquet(str(tmp_path / "rows")).selectExpr("CAST(CAST(value AS STRING) AS INT)").collect()
    assert sorted(row[0] for row in rows) == list(range(50, produced))
