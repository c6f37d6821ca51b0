"""Streams: micro-batches, restarts, what is lost and what only looks like it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.core.ids import TopicPartition
from tests.progress import wait_until
from tests.system.spark.broker import Topics, values

Options = dict[str, str]
RunNow = Callable[..., list[dict[str, Any]]]


def rows(spark: SparkSession, tmp_path: Path) -> list[int]:
    frame = spark.read.parquet(str(tmp_path / "rows"))
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def offset(report: dict[str, Any], which: str) -> Any:
    """An offset in a progress report, without the id and the leader epochs of the topic."""
    document = json.loads(report["sources"][0][which])
    assert len(document.pop("$ids")) == 1
    assert which == "latestOffset" or len(document.pop("$epochs")) == 1
    return document


def sizes(progress: list[dict[str, Any]]) -> list[int]:
    return [report["numInputRows"] for report in progress if report["numInputRows"]]


@pytest.mark.system
def test_limits_lag_and_the_consumer_group(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic, 2)
    topics.produce(topic, [*values(70), *values(30, start=100, partition=1)])
    progress = run_now(startingOffsets="earliest", maxOffsetsPerTrigger="40", groupId=topic)
    assert rows(spark, tmp_path) == [*range(70), *range(100, 130)]
    assert sizes(progress) == [40, 40, 20]
    assert [offset(report, "endOffset") for report in progress] == [
        {topic: {"0": 28, "1": 12}},
        {topic: {"0": 56, "1": 24}},
        {topic: {"0": 70, "1": 30}},
    ]
    # Lag is in every report: what the log holds, not what the limit let through.
    assert {str(offset(report, "latestOffset")) for report in progress} == {str({topic: {"0": 70, "1": 30}})}
    # The last micro-batch gets no commit() from Spark; the group knows of it all the same.
    assert topics.group_offsets(topic) == {
        TopicPartition(topic, 0): (70, ""),
        TopicPartition(topic, 1): (30, ""),
    }
    topics.produce(topic, values(5, start=200))
    assert sizes(run_now(startingOffsets="earliest", groupId=topic)) == [5]
    assert rows(spark, tmp_path)[-5:] == [200, 201, 202, 203, 204]


@pytest.mark.system
def test_bytes_per_micro_batch(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.produce(topic, values(10_000))
    progress = run_now(startingOffsets="earliest", maxBytesPerTrigger="40k")
    assert rows(spark, tmp_path) == list(range(10_000))
    assert 3 <= len(sizes(progress)) <= 8


@pytest.mark.system
def test_the_first_position_survives_a_crash_in_the_first_micro_batch(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.produce(topic, values(100))
    run_now(startingOffsets="latest")
    # As a driver leaves it that dies between planning and committing micro-batch 0:
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    topics.produce(topic, values(38, start=100))
    run_now(startingOffsets="latest")
    assert rows(spark, tmp_path) == list(range(100, 138))


@pytest.mark.system
def test_a_crash_in_any_other_micro_batch_reads_the_same_offsets_again(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.produce(topic, values(10))
    run_now(startingOffsets="earliest")
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in (commits / str(newest), commits / f".{newest}.crc"):
        file.unlink(missing_ok=True)
    topics.produce(topic, values(5, start=10))
    progress = run_now(startingOffsets="earliest")
    assert sizes(progress) == [5] or sizes(progress) == [10, 5]
    assert rows(spark, tmp_path) == list(range(15))  # the file sink knows micro-batches it has written


@pytest.mark.system
def test_new_partitions_are_read_from_their_beginning(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic)
    run_now(startingOffsets="latest")
    topics.add_partitions(topic, 3)
    topics.produce(topic, values(5, partition=2))
    run_now(startingOffsets="latest")
    assert rows(spark, tmp_path) == list(range(5))


@pytest.mark.system
@pytest.mark.usefixtures("transactions")
def test_markers_and_aborted_records_are_no_loss(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.transaction(topic, values(5), commit=False)
    topics.transaction(topic, values(5, start=5), commit=True)
    topics.transaction(topic, values(5, start=10), commit=False)
    run_now(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert rows(spark, tmp_path) == [5, 6, 7, 8, 9]


@pytest.mark.system
@pytest.mark.usefixtures("transactions")
def test_a_position_in_an_open_transaction_is_no_loss(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.produce(topic, values(3))
    end_transaction = topics.open_transaction(topic, values(4, start=3))
    assert sizes(run_now(startingOffsets="earliest", **{"kafka.isolation.level": "read_uncommitted"})) == [7]
    assert sizes(run_now(startingOffsets="earliest")) == []
    topics.produce(topic, values(2, start=7))
    assert sizes(run_now(startingOffsets="earliest")) == []
    end_transaction(True)
    assert sizes(run_now(startingOffsets="earliest")) == [2]
    assert rows(spark, tmp_path) == list(range(9))


@pytest.mark.system
def test_lost_records_stop_the_query_or_are_skipped_or_are_counted(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.produce(topic, values(10))
    run_now(startingOffsets="earliest")
    topics.produce(topic, values(10, start=10))
    topics.delete_before(topic, 0, 14)
    with pytest.raises(Exception, match="offsets 10 to 13 were deleted before they were read"):
        run_now(startingOffsets="earliest")
    progress = run_now(startingOffsets="earliest", failOnDataLoss="report", groupId=topic)
    assert rows(spark, tmp_path) == [*range(10), *range(14, 20)]
    assert offset(progress[-1], "endOffset") == {"$lost": {topic: {"0": 4}}, topic: {"0": 20}}
    assert topics.group_offsets(topic) == {TopicPartition(topic, 0): (20, "lost=4")}


@pytest.mark.system
@pytest.mark.parametrize("count", [4, 14])
def test_a_topic_made_anew_shorter_or_longer(
    spark: SparkSession, topics: Topics, topic: str, run_now: RunNow, tmp_path: Path, count: int
) -> None:
    topics.create(topic)
    topics.produce(topic, values(10))
    run_now(startingOffsets="earliest")
    topics.delete(topic)
    topics.create(topic)
    topics.produce(topic, values(count, start=50))
    with pytest.raises(Exception, match=f"the topic {topic} was replaced: .*up to offset 10"):
        run_now(startingOffsets="earliest")
    run_now(startingOffsets="earliest", failOnDataLoss="false")
    topics.produce(topic, values(2, start=70))
    run_now(startingOffsets="earliest", failOnDataLoss="false")
    assert rows(spark, tmp_path) == [*range(10), *range(50, 50 + count), 70, 71]


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 40])
def test_a_topic_made_anew_while_the_query_runs(
    spark: SparkSession, topics: Topics, topic: str, options: Options, tmp_path: Path, count: int
) -> None:
    topics.create(topic)
    topics.produce(topic, values(10))
    query = (
        spark.readStream.format("barnabas")
        .options(**options, startingOffsets="earliest")
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_until(lambda: (tmp_path / "checkpoint/commits/0").exists() or not query.isActive, "10 rows are read")
        topics.delete(topic)
        topics.create(topic)
        topics.produce(topic, values(count, start=50))
        wait_until(lambda: not query.isActive, "the query notices that its topic was replaced")
        assert re.search("was replaced|the partition was deleted", str(query.exception()))
        assert rows(spark, tmp_path) == list(range(10))
    finally:
        query.stop()


def test_options_are_refused_when_the_query_is_made(spark: SparkSession, options: Options) -> None:
    stream = spark.readStream.format("barnabas").options(**options, endingOffsets="latest")
    with pytest.raises(Exception, match="not valid in a streaming query"):
        stream.load().writeStream.format("noop").start().awaitTermination(240)
