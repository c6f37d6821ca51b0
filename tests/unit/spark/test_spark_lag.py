"""The lag of a source, from progress reports and from checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.source.lag import PartitionLag, committed_batch, parse_offset_log, source_lag, with_lag
from barnabas.spark.source.positions import Position
from barnabas.spark.source.progress import checkpoint_positions

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
JVM_NAME = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@785e22ed"


def test_lag_of_each_partition_and_its_metrics() -> None:
    lag = source_lag(Position({T0: 40, T1: 10}, {T0: 3}), {T0: 50, T1: 10, U0: 9}, {T0: 0, T1: 0, U0: 4}, {T0: 10.0})
    assert lag.partitions == {
        T0: PartitionLag(40, 50, 10),
        T1: PartitionLag(10, 10, 0),
        U0: PartitionLag(None, 9, 5),  # a new partition counts from its log start offset
    }
    assert (lag.description, lag.offsets_behind, lag.lost_records) == ("barnabas[t, u]", 15, 3)
    assert lag.metrics() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "10",
        "avgOffsetsBehindLatest": "5.0",
        "estimatedTotalBytesBehindLatest": "100",
    }


def test_deleted_records_and_a_position_beyond_the_end_are_no_lag() -> None:
    lag = source_lag(Position({T0: 10, T1: 99}), {T0: 50, T1: 90}, {T0: 45, T1: 0})
    assert {tp: part.behind for tp, part in lag.partitions.items()} == {T0: 5, T1: 0}
    assert source_lag(None, {}).metrics() == {}


def test_a_progress_report_names_the_topics_and_has_the_metrics() -> None:
    ours = {
        "description": JVM_NAME,
        "endOffset": '{"t": {"0": 40, "1": 10}}',
        "latestOffset": {"t": {"0": 50, "1": 10}},
        "metrics": {},
    }
    rate = {"description": "RateStreamV2[rowsPerSecond=1]", "endOffset": "4", "latestOffset": "4", "metrics": {}}
    other = {"description": JVM_NAME, "endOffset": '{"page": 3}', "latestOffset": None, "metrics": {}}
    report = with_lag({"batchId": 7, "sources": [ours, rate, other]})
    metrics = {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "10", "avgOffsetsBehindLatest": "5.0"}
    assert report == {"batchId": 7, "sources": [ours | {"description": "barnabas[t]", "metrics": metrics}, rate, other]}


def test_lost_records_of_a_progress_report_are_a_metric() -> None:
    end = json.dumps({"$lost": {"t": {"0": 75}}, "t": {"0": 100}})
    report = with_lag({"sources": [{"description": JVM_NAME, "endOffset": end, "latestOffset": None}]})
    assert report["sources"][0]["metrics"] == {"lostRecords": "75"}


def test_the_last_complete_micro_batch() -> None:
    assert committed_batch(["9", "10", "11", ".11.crc"], ["9", "10", ".10.crc"]) == 10
    assert committed_batch(["0"], []) is None


def test_positions_of_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(SparkSourceError, match="not the checkpoint of a streaming query"):
        checkpoint_positions(tmp_path)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"t": {"0": 3}}\n-\n7')
    assert checkpoint_positions(tmp_path) == []
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert checkpoint_positions(tmp_path) == [Position({T0: 3}), None, None]
    with pytest.raises(SparkSourceError, match="version 'v9'"):
        parse_offset_log("v9\n{}\n")
