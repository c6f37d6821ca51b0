"""When flows are started, and what follows from their failures."""

from __future__ import annotations

from barnabas.spark.pipelines.graph import FlowNode, OutputKind, OutputNode, ResolvedFlow
from barnabas.spark.pipelines.schedule import FlowSchedule, FlowState


def resolved(name: str, *upstream: str, streaming: bool = True) -> ResolvedFlow:
    kind = OutputKind.STREAMING_TABLE if streaming else OutputKind.MATERIALIZED_VIEW
    node = FlowNode(name, name, "a.py:1", lambda: None)
    return ResolvedFlow(node, OutputNode(name, kind, "a.py:1"), streaming, upstream, frozenset(upstream))


def schedule(*flows: ResolvedFlow, continuous: bool = False) -> FlowSchedule:
    return FlowSchedule(flows, continuous=continuous, refresh_interval_ms=5_000)


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


def test_once_a_flow_is_started_three_times_and_then_its_followers_are_skipped() -> None:
    flows = schedule(resolved("a"), resolved("b", "a"), resolved("c", "b"), resolved("other"))
    assert due(flows, 0) == ["a", "other"]
    assert flows.on_failed("a", 0, is_final=False) is FlowState.RETRYING
    assert (due(flows, 999), due(flows, 1_000)) == ([], ["a"])
    flows.on_failed("a", 1_000, is_final=False)
    assert (due(flows, 2_999), due(flows, 3_000)) == ([], ["a"])
    assert flows.on_failed("a", 3_000, is_final=False) is FlowState.FAILED
    flows.on_completed("other", 3_000)
    assert {name: state.value for name, state in flows.states().items()} == {
        "a": "failed",
        "b": "skipped",
        "c": "skipped",
        "other": "completed",
    }
    assert (flows.is_done, flows.has_failed) == (True, True)


def test_a_final_failure_is_not_tried_again() -> None:
    flows = schedule(resolved("a"), continuous=True)
    due(flows, 0)
    assert flows.on_failed("a", 0, is_final=True) is FlowState.FAILED


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
    assert not flows.is_done
    flows.stop()
    assert flows.is_done


def test_continuous_flows_are_started_for_ever_with_growing_pauses_until_they_make_progress() -> None:
    flows = schedule(resolved("a"), continuous=True)
    now, pauses = 0, []
    for _ in range(8):
        assert due(flows, now) == ["a"]
        flows.on_failed("a", now, is_final=False)
        begin = now
        while not flows.due(now):
            now += 500
        pauses.append(now - begin)
        flows._flows["a"].state = FlowState.RETRYING
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    flows.due(now)
    flows.on_progress("a")
    flows.on_failed("a", now, is_final=False)
    assert due(flows, now + 1_000) == ["a"]


def test_a_busy_machine_gets_more_attempts() -> None:
    flows = schedule(resolved("a"))
    states = []
    for now in range(0, 11 * 100_000, 100_000):
        due(flows, now)
        states.append(flows.on_failed("a", now, is_final=False, is_starved=True))
    assert states == [FlowState.RETRYING] * 10 + [FlowState.FAILED]
