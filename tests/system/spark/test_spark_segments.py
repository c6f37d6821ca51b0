"""Closed segments read from the broker's files: the same rows as through the broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.partition_reader import OffsetRange
from tests.system.spark.broker import Topics
from tests.system.spark.segment_reads import COMMITTED, check_both_ways, fill, read, record_fetches

Options = dict[str, str]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[OffsetRange]:
    """The ranges that readers in this process fetch from the broker."""
    return record_fetches(monkeypatch)


@pytest.mark.usefixtures("transactions")
def test_segments_and_broker_give_the_same_tables(
    spark: SparkSession, topics: Topics, options: Options, topic: str, fetched: list[OffsetRange]
) -> None:
    fill(topics, topic)
    expected = check_both_ways(options, fetched)
    frame = spark.read.format("barnabas").options(**options, **COMMITTED, readFrom="segments", includeHeaders="true")
    assert sorted(frame.load().select("partition", "offset").collect()) == sorted(
        zip(expected["partition"].to_pylist(), expected["offset"].to_pylist(), strict=True)
    )


def test_executors_without_the_files_read_from_the_broker(
    topics: Topics, options: Options, topic: str, fetched: list[OffsetRange], tmp_path: Path
) -> None:
    fill(topics, topic)
    expected = read(options)
    offsets = sum(wanted.end - wanted.start for wanted in fetched)
    fetched.clear()
    elsewhere = {"readFrom": "segments", "segments.root": f"{tmp_path}/{{broker}}"}
    assert read(options, **elsewhere).equals(expected)
    assert sum(wanted.end - wanted.start for wanted in fetched) == offsets
