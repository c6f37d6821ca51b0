"""The row of a flow, from Spark's progress reports."""

from __future__ import annotations

from typing import Any

from barnabas.spark.pipelines.progress import FlowProgress, ProgressMeter, total_lag


def report(batch: int, rows: int, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-11-23T00:00:0{batch}.000Z",
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 200, "addBatch": 80},
        **more,
    }


def test_rows_rate_lag_watermark_and_state() -> None:
    meter = ProgressMeter()
    source = {
        "endOffset": '{"t": {"0": 60, "1": 5}}',
        "latestOffset": '{"t": {"0": 100, "1": 5}, "$lost": {"t": {"0": 1}}}',
    }
    assert meter.add(
        report(
            4,
            100,
            sources=[source, {"endOffset": "7", "latestOffset": None}],
            eventTime={"watermark": "2013-01-01T00:00:00.000Z"},
            stateOperators=[
                {"numRowsTotal": 3, "memoryUsedBytes": 10},
                {"numRowsTotal": 4, "memoryUsedBytes": 20},
            ],
        )
    )
    assert meter.progress == FlowProgress(
        rows=100,
        batches=1,
        batch_id=4,
        rows_per_second=500.0,
        lag=40,
        batch_ms=200,
        watermark="2013-01-01T00:00:00.000Z",
        state_rows=7,
        state_bytes=30,
        timestamp="2026-11-23T00:00:04.000Z",
    )
    assert [found["description"] for found in meter.sources] == [None, None]  # neither is a Python source


def test_the_sources_have_their_names_and_metrics() -> None:
    meter = ProgressMeter()
    source = {
        "description": "PythonMicroBatchStream@1",
        "endOffset": '{"t": {"0": 6}}',
        "latestOffset": '{"t": {"0": 10}}',
    }
    meter.add(report(0, 6, sources=[source]))
    (found,) = meter.sources
    assert (found["description"], found["metrics"]["maxOffsetsBehindLatest"]) == ("barnabas[t]", "4")
    meter.add({"timestamp": "later", "batchId": 1, "sources": []})
    assert meter.sources == [found]


def test_the_same_report_counts_once() -> None:
    meter = ProgressMeter()
    assert meter.add(report(0, 10))
    assert not meter.add(report(0, 10))
    assert meter.progress.rows == 10


def test_a_report_without_a_micro_batch_sets_the_rate_to_zero_and_keeps_the_rest() -> None:
    meter = ProgressMeter()
    meter.add(report(0, 10))
    assert not meter.add({"timestamp": "later", "batchId": 1, "numInputRows": 0, "durationMs": {"triggerExecution": 5}})
    assert (meter.progress.rows_per_second, meter.progress.rows, meter.progress.batch_ms) == (0.0, 10, 200)


def test_a_materialized_view_shows_the_rows_that_it_has() -> None:
    meter = ProgressMeter()
    meter.add_computation(10, 100, "t0")
    meter.add_computation(12, 50, "t1")
    assert meter.progress == FlowProgress(12, 2, 1, 240.0, batch_ms=50, timestamp="t1")


def test_a_repeated_micro_batch_keeps_the_lag() -> None:
    meter = ProgressMeter()
    meter.add(report(0, 10, sources=[{"endOffset": '{"t": {"0": 6}}', "latestOffset": '{"t": {"0": 10}}'}]))
    meter.add(report(1, 4, sources=[{"endOffset": '{"t": {"0": 10}}', "latestOffset": None}]))
    assert meter.progress.lag == 4


def test_a_topic_that_does_not_exist_yet_has_no_lag() -> None:
    meter = ProgressMeter()
    meter.add(report(0, 0, sources=[{"endOffset": "{}", "latestOffset": "{}"}]))
    assert (meter.progress.lag, meter.topics) == (None, frozenset())
    meter.add(report(1, 4, sources=[{"endOffset": '{"t": {"0": 4}}', "latestOffset": '{"t": {"0": 6}}'}]))
    assert (meter.progress.lag, meter.topics) == (2, {"t"})


def test_the_lag_of_two_sources_is_unknown_if_that_of_one_is() -> None:
    known = {"endOffset": '{"t": {"0": 6}}', "latestOffset": '{"t": {"0": 10}}'}
    meter = ProgressMeter()
    meter.add(report(0, 4, sources=[known, {"endOffset": '{"u": {"0": 6}}', "latestOffset": None}]))
    assert meter.progress.lag is None


def test_a_sum_without_what_is_unknown_would_look_like_a_small_lag() -> None:
    table, reader = {"type": "stream", "topics": [], "lag": None}, {"type": "stream", "topics": ["t"], "lag": 5}
    view = {"type": "batch", "topics": ["t"], "lag": None}
    assert total_lag([table, view, reader]) == 5
    assert total_lag([table, {**reader, "lag": None}, reader]) is None
    assert total_lag([table]) is None
    assert total_lag([{"type": "stream", "lag": 5}]) == 5, "the file of an older version"
