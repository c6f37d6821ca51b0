"""Batch reads: every column, every way to say where to begin and to end."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import connect
from tests.system.spark.broker import Record, Topics, values

Options = dict[str, str]


def load(spark: SparkSession, options: Options, **more: str) -> DataFrame:
    return spark.read.format("barnabas").options(**{**options, **more}).load()


def read_values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_of_every_codec(
    spark: SparkSession, topics: Topics, options: Options, topic: str, codec: str
) -> None:
    topics.create(topic, 2)
    records = [
        Record(b"v" * 2000, b"k", 0, 1_700_000_000_123, (("h", b"\x00\xff"), ("h", None), ("é", b""))),
        Record(None, None, 0, 1_700_000_000_124),
        Record(b"", b"", 1, 1),
    ]
    topics.produce(topic, records, compression_type=codec)
    frame = load(spark, options, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = [tuple(row) for row in frame.orderBy("partition", "offset").collect()]

    def at(ms: int) -> datetime:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
        return moment.astimezone().replace(tzinfo=None)  # PySpark shows local time

    headers = [("h", b"\x00\xff"), ("h", None), ("é", b"")]
    assert rows == [
        (b"k", b"v" * 2000, topic, 0, 0, at(1_700_000_000_123), 0, headers),
        (None, None, topic, 0, 1, at(1_700_000_000_124), 0, None),
        (b"", b"", topic, 1, 0, at(1), 0, None),
    ]


def test_where_to_begin_and_to_end(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic, 2)
    topics.produce(topic, [*values(100), *values(50, start=1000, partition=1)])

    def offsets(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    assert read_values(load(spark, options)) == [*range(100), *range(1000, 1050)]
    assert read_values(load(spark, options, startingOffsets=offsets(90, -2), endingOffsets=offsets(95, 3))) == [
        *range(90, 95),
        *range(1000, 1003),
    ]
    # Values are also the milliseconds after the first second.
    assert read_values(load(spark, options, startingTimestamp="1098", endingTimestamp="2002")) == [98, 99, 1000, 1001]
    by_time = load(
        spark, options, startingOffsetsByTimestamp=offsets(1050, 2049), endingOffsetsByTimestamp=offsets(1052, 1)
    )
    assert read_values(by_time) == [50, 51]
    late = {"startingTimestamp": "1099", "endingOffsets": offsets(100, 0)}
    assert read_values(load(spark, options, **late)) == [99]
    with pytest.raises(Exception, match="no record of"):
        load(spark, options, startingTimestamp="999999999").count()
    assert load(spark, options, startingTimestamp="999999999", startingOffsetsByTimestampStrategy="latest").count() == 0


def test_subscriptions(spark: SparkSession, topics: Topics, servers: str, topic: str) -> None:
    for name in ("a", "b"):
        topics.create(f"{topic}.{name}", 2)
        topics.produce(f"{topic}.{name}", [*values(3), *values(3, start=10, partition=1)])
    options = {"kafka.bootstrap.servers": servers}
    pattern = load(spark, options, subscribePattern=topic.replace("-", "[-]") + r"\..")
    assert pattern.count() == 12
    assigned = load(spark, options, assign=json.dumps({f"{topic}.a": [1], f"{topic}.b": [0]}))
    assert read_values(assigned) == [0, 1, 2, 10, 11, 12]
    with pytest.raises(Exception, match="do not exist"):
        load(spark, options, subscribe=f"{topic}.a,{topic}.nowhere").count()
    with pytest.raises(Exception, match="exactly one of subscribe, subscribePattern and assign"):
        load(spark, options).count()


def test_an_empty_topic_and_columns(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic)
    assert load(spark, options).collect() == []
    topics.produce(topic, values(2))
    assert load(spark, options, columns="offset,topic").collect() == [(0, topic), (1, topic)]
    assert load(spark, options, includeValue="false", includeKey="false").columns == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    # A filter is fine: the source does not offer to take it over, which Spark would refuse by default.
    assert load(spark, options).where("offset = 1").count() == 1


def test_sql(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic)
    topics.produce(topic, values(4))
    listed = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW numbers USING barnabas OPTIONS ({listed})")
    assert spark.sql("SELECT sum(CAST(value AS STRING)) AS s FROM numbers").collect() == [(6.0,)]


@pytest.mark.parametrize(
    ("splitting", "tasks"),
    [
        ({}, 2),
        ({"minPartitions": "6"}, 6),
        ({"maxRecordsPerPartition": "250"}, 8),
        ({"maxBytesPerPartition": "200k"}, 20),
    ],
)
def test_a_partition_is_spread_over_tasks(
    spark: SparkSession, topics: Topics, options: Options, topic: str, splitting: Options, tasks: int
) -> None:
    topics.create(topic, 2)
    big = splitting.get("maxBytesPerPartition") is not None
    count, width = (20_000, 100) if big else (1000, 1)
    topics.produce(topic, (Record(b"%*d" % (width, i), partition=i % 2) for i in range(2 * count)))
    frame = load(spark, options, **splitting)
    found = frame.rdd.getNumPartitions()
    assert found == tasks if not big else tasks <= found <= tasks * 1.5
    assert frame.selectExpr("count(*)", "sum(CAST(CAST(value AS STRING) AS INT))").collect() == [
        (2 * count, sum(range(2 * count)))
    ]


@pytest.mark.usefixtures("transactions")
def test_transactions(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic)
    topics.transaction(topic, values(3), commit=True)
    topics.transaction(topic, values(3, start=10), commit=False)
    topics.transaction(topic, values(3, start=20), commit=True)
    assert read_values(load(spark, options)) == [0, 1, 2, 20, 21, 22]
    everything = load(spark, options, **{"kafka.isolation.level": "read_uncommitted"})
    assert read_values(everything) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


@pytest.mark.usefixtures("transactions")
def test_offsets_and_times_in_an_open_transaction(
    spark: SparkSession, topics: Topics, options: Options, topic: str
) -> None:
    topics.create(topic)
    topics.produce(topic, values(3))
    end_transaction = topics.open_transaction(topic, values(1000, start=3))
    later = {"startingTimestamp": "1005"}  # the timestamps are 1000 and more
    assert read_values(load(spark, options, **later)) == []
    client = connect({"bootstrap.servers": options["kafka.bootstrap.servers"]})
    view = client.log_view([TopicPartition(topic, 0)])
    assert view.latest == {TopicPartition(topic, 0): 3}
    assert client.bytes_per_offset(view)[TopicPartition(topic, 0)] < 200, "the size is that of 1,003 records"
    ending = {"endingOffsets": json.dumps({topic: {"0": 8}})}
    with pytest.raises(Exception, match="The transaction that began at offset 3 is open"):
        read_values(load(spark, options, **ending, **{"kafkaConsumer.pollTimeoutMs": "1000"}))
    threading.Timer(1.0, end_transaction, (True,)).start()
    assert read_values(load(spark, options, **ending)) == list(range(8)), "the read waits for the transaction"
    assert read_values(load(spark, options, **later))[:2] == [5, 6]


def test_a_record_of_ten_megabytes(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic, max_message_bytes="12000000")
    topics.produce(topic, [Record(b"x" * 10_000_000), Record(b"y")], batch_size=11_000_000)
    assert [row[0] for row in load(spark, options).selectExpr("length(value)").collect()] == [10_000_000, 1]


def test_what_was_deleted(spark: SparkSession, topics: Topics, options: Options, topic: str) -> None:
    topics.create(topic)
    topics.produce(topic, values(10))
    topics.delete_before(topic, 0, 4)
    assert read_values(load(spark, options)) == [4, 5, 6, 7, 8, 9]
    early = json.dumps({topic: {"0": 2}})
    with pytest.raises(Exception, match="offsets 2 to 3 were deleted before they were read"):
        load(spark, options, startingOffsets=early).count()
    assert load(spark, options, startingOffsets=early, failOnDataLoss="false").count() == 6
    with pytest.raises(Exception, match="the query reads to offset 12, but the log ends at 10"):
        load(spark, options, endingOffsets=json.dumps({topic: {"0": 12}})).count()
