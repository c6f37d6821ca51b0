"""The graph of a pipeline: what is refused, and what is known about flows once their queries have been called."""

from __future__ import annotations

import pytest

from barnabas.spark.pipelines.errors import GraphError
from barnabas.spark.pipelines.graph import FlowNode, OutputKind, OutputNode, PipelineGraph, Resolution

TABLE, VIEW = OutputKind.STREAMING_TABLE, OutputKind.MATERIALIZED_VIEW
TEMPORARY, SINK = OutputKind.TEMPORARY_VIEW, OutputKind.SINK


def build(*outputs: tuple[str, OutputKind], flows: dict[str, str] | None = None) -> PipelineGraph:
    """`flows` are names and targets; without it, each output has the flow of its name."""
    graph = PipelineGraph()
    for name, kind in outputs:
        graph.add_output(OutputNode(name, kind, "a.py:1"))
    for name, target in (flows if flows is not None else {name: name for name, _ in outputs}).items():
        graph.add_flow(FlowNode(name, target, "a.py:2", lambda: None))
    return graph


def flow(graph: PipelineGraph, name: str) -> FlowNode:
    return next(flow for flow in graph.flows if flow.name == name)


def test_names_are_compared_without_case_and_defaults() -> None:
    graph = build(("Orders", TABLE))
    assert graph.output("spark_catalog.default.`orders`") is graph.output("ORDERS")
    assert graph.output("other.orders") is None


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (lambda: build(), "the pipeline has no flow"),
        (
            lambda: build(("orders", SINK), flows={"f": "order"}),
            "writes to order, which is missing: did you mean orders?",
        ),
        (lambda: build(("a", TABLE), ("b", TABLE), flows={"a": "a"}), "no flow writes to the streaming table b"),
        (lambda: build(("v", VIEW), flows={"v": "v", "f": "v"}), "cannot append to the materialized view v"),
        (lambda: build(("a", TABLE), ("A", SINK)), "has the name of the streaming table that is defined in a.py:1"),
    ],
)
def test_what_does_not_fit(graph: object, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        graph().check()  # type: ignore[operator]
    assert message in str(caught.value)


def test_a_flow_knows_its_sources_through_views() -> None:
    flows = {"raw": "raw", "seen": "seen", "f": "out", "f2": "out"}
    graph = build(("raw", TABLE), ("seen", TEMPORARY), ("beyond", TEMPORARY), ("out", SINK), flows=flows)
    graph.add_flow(FlowNode("beyond", "beyond", "a.py:2", lambda: None))
    graph.check()
    resolution = Resolution(graph)
    resolution.begin(flow(graph, "f"))
    resolution.require("seen", streaming=True)
    resolution.begin(flow(graph, "seen"))
    resolution.require("raw", streaming=True)
    resolution.begin(flow(graph, "raw"))
    resolution.require("elsewhere.t", streaming=True)
    resolution.require("beyond", streaming=True)
    resolution.finish(flow(graph, "raw"), is_streaming=True)
    resolution.finish(flow(graph, "seen"), is_streaming=True)
    resolution.finish(flow(graph, "f"), is_streaming=True)
    resolution.begin(flow(graph, "f2"))
    resolution.require("raw", streaming=True)
    resolution.finish(flow(graph, "f2"), is_streaming=True)
    assert {name: (r.sources, sorted(r.upstream)) for name, r in resolution.resolved.items()} == {
        "raw": (("beyond",), []),
        "f": (("seen", "raw"), ["raw"]),
        "f2": (("raw",), ["raw"]),
    }


def test_a_cycle_is_shown_as_a_path() -> None:
    graph = build(("a", TABLE), ("b", TABLE))
    resolution = Resolution(graph)
    resolution.begin(flow(graph, "a"))
    resolution.begin(flow(graph, "b"))
    with pytest.raises(GraphError, match="a reads itself: a ← b ← a"):
        resolution.begin(flow(graph, "a"))


@pytest.mark.parametrize(
    ("kind", "streaming", "message"),
    [
        (VIEW, True, "the query of the materialized view x is a stream"),
        (TABLE, False, "is not a stream, but the streaming table x needs one"),
        (SINK, False, "is not a stream, but the sink x needs one"),
    ],
)
def test_streams_and_batches_are_not_mixed_up(kind: OutputKind, streaming: bool, message: str) -> None:
    graph = build(("x", kind))
    resolution = Resolution(graph)
    resolution.begin(flow(graph, "x"))
    with pytest.raises(GraphError, match=message):
        resolution.finish(flow(graph, "x"), is_streaming=streaming)


@pytest.mark.parametrize(("kind", "message"), [(SINK, "a sink can only be written"), (VIEW, "computed anew each time")])
def test_what_cannot_be_read_as_a_stream(kind: OutputKind, message: str) -> None:
    graph = build(("x", kind), ("y", TABLE))
    resolution = Resolution(graph)
    resolution.begin(flow(graph, "y"))
    with pytest.raises(GraphError, match=message):
        resolution.require("x", streaming=True)


def test_the_topics_that_a_view_reads_are_read_by_its_readers() -> None:
    graph = build(("raw", TABLE), ("seen", TEMPORARY), ("out", SINK), flows={"raw": "raw", "seen": "seen", "f": "out"})
    resolution = Resolution(graph)
    resolution.begin(flow(graph, "f"))
    resolution.require("seen", streaming=True)
    resolution.begin(flow(graph, "seen"))
    resolution.read_topics({"subscribe": "orders"})
    resolution.require("raw", streaming=True)
    resolution.begin(flow(graph, "raw"))
    resolution.read_topics({"subscribe": "raw"})
    resolution.finish(flow(graph, "raw"), is_streaming=True)
    resolution.finish(flow(graph, "seen"), is_streaming=True)
    resolution.finish(flow(graph, "f"), is_streaming=True)
    topics = {name: resolution.topic_sources[name] for name in ("raw", "f")}
    assert topics == {"raw": [{"subscribe": "raw"}], "f": [{"subscribe": "orders"}]}
