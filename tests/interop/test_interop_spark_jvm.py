"""Spark's own Kafka connector reads and writes our broker, unchanged, and agrees with our data source row by row."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.secure_broker import MECHANISMS, SecureBroker, secure_broker
from tests.interop.spark_connector import connector_jars, running_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
_names = itertools.count()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    jars = connector_jars()
    if not jars:
        pytest.skip("Spark's Kafka connector could not be fetched from Maven Central")
    with running_session(jars) as session:
        yield session


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"jvm-{os.getpid()}-{next(_names)}"


def load(spark: SparkSession, source: str, broker: BrokerProcess, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", topic).option("includeHeaders", "true").options(**options).load()


def save(frame: DataFrame, source: str, broker: BrokerProcess, topic: str, **options: str) -> None:
    writer = frame.write.format(source).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.option("topic", topic).options(**options).mode("append").save()


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Rows with and without keys and headers."""
    return spark.range(count).selectExpr(
        "IF(id % 7 = 0, NULL, CAST(id % 100 AS STRING)) AS key",
        "IF(id % 11 = 0, NULL, REPEAT(CAST(id AS STRING), 3)) AS value",
        "IF(id % 5 = 0, array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))), NULL) AS headers",
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("writer", ["kafka", "barnabas"])
def test_both_sources_read_the_same_from_both_sinks(
    spark: SparkSession, broker: BrokerProcess, topic: str, writer: str, codec: str
) -> None:
    save(numbers(spark, 5_000), writer, broker, topic, **{"kafka.compression.type": codec})
    theirs, ours = (
        load(spark, source, broker, topic).orderBy("partition", "offset") for source in ("kafka", "barnabas")
    )
    assert ours.schema == theirs.schema
    assert ours.count() == 5_000
    assert ours.collect() == theirs.collect()


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"TOPIC": {"0": 900}}', "endingOffsets": '{"TOPIC": {"0": 1500}}'},
        {"minPartitions": "5"},
        {"startingTimestamp": "1", "endingOffsets": "latest"},
    ],
)
def test_options_mean_the_same(spark: SparkSession, broker: BrokerProcess, topic: str, options: dict[str, str]) -> None:
    save(numbers(spark, 3_000), "barnabas", broker, topic)
    given = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    theirs, ours = (load(spark, source, broker, topic, **given) for source in ("kafka", "barnabas"))
    assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()
    assert ours.orderBy("partition", "offset").collect() == theirs.orderBy("partition", "offset").collect()


@pytest.mark.parametrize(("reader", "writer"), [("kafka", "kafka"), ("kafka", "barnabas"), ("barnabas", "kafka")])
def test_streams(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path, reader: str, writer: str
) -> None:
    save(numbers(spark, 1_000), "barnabas", broker, topic)
    copy = f"{topic}.copy"
    stream = (
        spark.readStream.format(reader)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format(writer)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    before = load(spark, "kafka", broker, topic).select("key", "value").collect()
    after = load(spark, "barnabas", broker, copy).select("key", "value").collect()
    assert sorted(after, key=repr) == sorted(before, key=repr)
    assert len(after) == 1_000


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
def test_the_connector_logs_in(spark: SparkSession, secure: SecureBroker, topic: str, mechanism: str | None) -> None:
    options = {f"kafka.{name}": value for name, value in secure.java(mechanism).items()}
    options["kafka.bootstrap.servers"] = secure.address(mechanism)
    numbers(spark, 100).write.format("kafka").option("topic", topic).options(**options).mode("append").save()
    read = spark.read.format("kafka").option("subscribe", topic).option("includeHeaders", "true").options(**options)
    assert read.load().count() == 100
