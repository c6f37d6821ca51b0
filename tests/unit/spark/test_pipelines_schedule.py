"""When flows are started, and what follows from their failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.spark.pipelines.failures import Cause
from barnabas.spark.pipelines.graph import FlowNode, OutputKind, OutputNode, ResolvedFlow
from barnabas.spark.pipelines.schedule import FlowRestarts, FlowSchedule, FlowState


def resolved(name: str, *upstream: str, streaming: bool = True) -> ResolvedFlow:
    kind = OutputKind.STREAMING_TABLE if streaming else OutputKind.MATERIALIZED_VIEW
    node = FlowNode(name, name, "a.py:1", lambda: None)
    return ResolvedFlow(node, OutputNode(name, kind, "a.py:1"), streaming, upstream, frozenset(upstream))


def schedule(*flows: ResolvedFlow, continuous: bool = False, restarts_max: int | None = None) -> FlowSchedule:
    return FlowSchedule(flows, continuous=continuous, refresh_interval_ms=5_000, restarts_max=restarts_max)


def due(of: FlowSchedule, now_ms: int) -> list[str]:
    return [flow.flow.name for flow in of.due(now_ms)]


def test_once_a_flow_starts_after_the_flows_that_write_its_sources() -> None:
    flows = schedule(resolved("totals", "a", "b", streaming=False), resolved("a"), resolved("b", "a"))
    assert due(flows, 0) == ["a"]
    assert due(flows, 1) == []
    flows.on_completed("a", 2)
    assert due(flows, 2) == ["b"]
    flows.on_completed("b", 3)
    assert due(flows, 3) == ["totals"]
    flows.on_completed("totals", 4)
    assert (flows.is_done, flows.has_failed) == (True, False)


@pytest.mark.parametrize("fails", [False, True])
def test_once_a_flow_starts_after_those_that_may_have_written_its_sources_also_if_they_failed(fails: bool) -> None:
    reader = replace(resolved("reader"), perhaps_upstream=frozenset({"capture"}))
    flows = schedule(reader, resolved("capture"))
    assert due(flows, 0) == ["capture"]
    if fails:
        flows.on_failed("capture", 1, Cause.FINAL)
    else:
        flows.on_completed("capture", 1)
    assert due(flows, 2) == ["reader"]
    assert due(schedule(reader, resolved("capture"), continuous=True), 0) == ["reader", "capture"]


def test_once_a_flow_is_started_three_times_and_then_its_followers_are_skipped() -> None:
    flows = schedule(resolved("a"), resolved("b", "a"), resolved("c", "b"), resolved("other"))
    assert due(flows, 0) == ["a", "other"]
    assert flows.on_failed("a", 0, Cause.ERROR) is FlowState.RETRYING
    assert (due(flows, 999), due(flows, 1_000)) == ([], ["a"])
    flows.on_failed("a", 1_000, Cause.OUTAGE)
    assert (due(flows, 2_999), due(flows, 3_000)) == ([], ["a"])
    assert flows.on_failed("a", 3_000, Cause.ERROR) is FlowState.FAILED
    flows.on_completed("other", 3_000)
    assert {name: state.value for name, state in flows.states().items()} == {
        "a": "failed",
        "b": "skipped",
        "c": "skipped",
        "other": "completed",
    }
    assert (flows.is_done, flows.has_failed) == (True, True)
    assert flows.restarts("a") == FlowRestarts(failures=3, restarts_max=2, restarts=2)


@pytest.mark.parametrize("continuous", [False, True])
def test_a_final_failure_is_not_tried_again_and_the_others_go_on(continuous: bool) -> None:
    flows = schedule(resolved("a"), resolved("b"), continuous=continuous)
    due(flows, 0)
    assert flows.on_failed("a", 0, Cause.FINAL) is FlowState.FAILED
    assert (flows.state("b"), flows.is_done) == (FlowState.RUNNING, False)
    flows.on_failed("b", 0, Cause.FINAL)
    assert flows.is_done, "when all flows have failed, the run ends"


def test_continuous_flows_all_start_at_once_and_views_are_computed_in_intervals() -> None:
    flows = schedule(
        resolved("a"),
        resolved("b", "a"),
        resolved("v", "b", streaming=False),
        resolved("w", "v", streaming=False),
        continuous=True,
    )
    assert due(flows, 0) == ["a", "b", "v"]
    flows.on_completed("v", 100)
    assert due(flows, 100) == ["w"]
    flows.on_completed("w", 200)
    assert (due(flows, 5_099), due(flows, 5_100)) == ([], ["v"])
    assert due(flows, 5_200) == [], "v is being replaced"
    assert not flows.is_done
    flows.stop()
    assert flows.is_done


def test_in_a_continuous_run_readers_go_on_with_what_a_failed_flow_has_written() -> None:
    flows = schedule(
        resolved("a"),
        resolved("b", "a"),
        resolved("v", "a", streaming=False),
        resolved("w", "v", streaming=False),
        resolved("x", streaming=False),
        resolved("y", "x", streaming=False),
        continuous=True,
    )
    assert due(flows, 0) == ["a", "b", "v", "x"]
    flows.on_failed("a", 0, Cause.FINAL)
    flows.on_completed("v", 100)
    assert due(flows, 100) == ["w"]
    flows.on_completed("w", 200)
    assert due(flows, 5_100) == ["v"]
    flows.on_failed("v", 5_100, Cause.FINAL)
    assert due(flows, 5_200) == ["w"], "v has its rows of before"
    flows.on_failed("x", 5_200, Cause.FINAL)
    assert {name: state.value for name, state in flows.states().items()} == {
        "a": "failed",
        "b": "running",
        "v": "failed",
        "w": "running",
        "x": "failed",
        "y": "skipped",
    }


@pytest.mark.parametrize(
    ("cause", "restarts_max", "limit"),
    [(Cause.ERROR, None, 10), (Cause.OUTAGE, None, 1_440), (Cause.STARVED, None, 1_440), (Cause.OUTAGE, 3, 3)],
)
def test_continuous_flows_are_started_up_to_a_limit_with_growing_pauses(
    cause: Cause, restarts_max: int | None, limit: int
) -> None:
    flows = schedule(resolved("a"), continuous=True, restarts_max=restarts_max)
    now, pauses = 0, []
    assert due(flows, now) == ["a"]
    while flows.on_failed("a", now, cause) is FlowState.RETRYING:
        retry_at_ms = flows.restarts("a").retry_at_ms
        assert retry_at_ms is not None
        assert (due(flows, retry_at_ms - 1), due(flows, retry_at_ms)) == ([], ["a"])
        pauses.append(retry_at_ms - now)
        now = retry_at_ms
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, *[60_000] * limit][:limit]
    assert flows.restarts("a") == FlowRestarts(failures=limit + 1, restarts_max=limit, restarts=limit)


def test_a_micro_batch_that_succeeds_begins_the_count_anew() -> None:
    flows = schedule(resolved("a"), continuous=True, restarts_max=1)
    due(flows, 0)
    flows.on_failed("a", 0, Cause.ERROR)
    due(flows, 1_000)
    flows.on_progress("a")
    assert flows.restarts("a") == FlowRestarts(restarts=1)
    assert flows.on_failed("a", 1_000, Cause.ERROR) is FlowState.RETRYING
    assert due(flows, 2_000) == ["a"]


def test_a_busy_machine_gets_more_attempts() -> None:
    flows = schedule(resolved("a"))
    states = []
    for now in range(0, 11 * 100_000, 100_000):
        due(flows, now)
        states.append(flows.on_failed("a", now, Cause.STARVED))
    assert states == [FlowState.RETRYING] * 10 + [FlowState.FAILED]
