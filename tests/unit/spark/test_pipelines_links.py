"""Flows that are linked by topics: which comes first, and what orders nothing."""

from __future__ import annotations

import pytest

from barnabas.spark.pipelines.graph import FlowNode, OutputKind, OutputNode, ResolvedFlow
from barnabas.spark.pipelines.links import TopicsRead, link_by_topics, topics_read

SERVERS = {"kafka.bootstrap.servers": "h:1,h:2"}


def sending(name: str, topic: str | None, *upstream: str, servers: str = "h:1,h:2") -> ResolvedFlow:
    options = {"Kafka.Bootstrap.Servers": servers} | ({} if topic is None else {"Topic": topic})
    output = OutputNode(f"sink-{name}", OutputKind.SINK, "a.py:1", "barnabas", options)
    return resolved(name, output, *upstream)


def table(name: str, *upstream: str) -> ResolvedFlow:
    return resolved(name, OutputNode(name, OutputKind.STREAMING_TABLE, "a.py:1"), *upstream)


def resolved(name: str, output: OutputNode, *upstream: str) -> ResolvedFlow:
    node = FlowNode(name, output.name, "a.py:1", lambda: None)
    return ResolvedFlow(node, output, True, upstream, frozenset(upstream))


def reading(**options: str) -> TopicsRead:
    found = topics_read(SERVERS | options)
    assert found is not None
    return found


def order(*flows: ResolvedFlow, **reads: TopicsRead) -> dict[str, list[str]]:
    linked = link_by_topics({flow.flow.name: flow for flow in flows}, {name: [read] for name, read in reads.items()})
    return {name: sorted(flow.upstream) for name, flow in linked.items()}


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "other, orders"},
        {"subscribepattern": "ord.*"},
        {"assign": '{"orders": [0, 1]}'},
        {"subscribe": "orders", "kafka.bootstrap.servers": "h:2,g:1"},
    ],
)
def test_the_reader_of_a_topic_comes_after_its_writers(options: dict[str, str]) -> None:
    found = order(
        table("count"),
        sending("clean", "orders"),
        sending("more", "orders"),
        table("last", "count"),
        count=reading(**options),
    )
    assert found == {"clean": [], "more": [], "count": ["clean", "more"], "last": ["count"]}
    assert list(found) == ["clean", "more", "count", "last"]


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders2"},
        {"subscribepattern": "rder"},
        {"subscribe": "orders", "kafka.bootstrap.servers": "g:1"},
    ],
)
def test_other_topics_and_other_clusters_link_nothing(options: dict[str, str]) -> None:
    assert order(table("count"), sending("clean", "orders"), count=reading(**options)) == {"count": [], "clean": []}


def test_the_names_of_the_local_host_are_one() -> None:
    read = reading(subscribe="t", **{"kafka.bootstrap.servers": "LOCALHOST:9092"})
    assert order(table("r"), sending("w", "t", servers="127.0.0.1:9092"), r=read) == {"w": [], "r": ["w"]}


def perhaps(*flows: ResolvedFlow, **reads: TopicsRead) -> dict[str, list[str]]:
    linked = link_by_topics({flow.flow.name: flow for flow in flows}, {name: [read] for name, read in reads.items()})
    return {name: sorted(flow.perhaps_upstream) for name, flow in linked.items()}


def test_a_sink_whose_rows_name_their_topics_may_write_any_of_its_cluster() -> None:
    flows = table("count"), sending("capture", None), table("other"), table("last", "count")
    reads = {"count": reading(subscribe="t"), "other": reading(subscribe="t", **{"kafka.bootstrap.servers": "g:1"})}
    assert order(*flows, **reads) == {"capture": [], "count": [], "other": [], "last": ["count"]}
    found = perhaps(*flows, **reads)
    assert found == {"capture": [], "count": ["capture"], "other": [], "last": []}
    assert list(found) == ["capture", "count", "other", "last"]


def test_what_a_flow_may_write_orders_nothing_within_a_circle() -> None:
    again = sending("again", None), sending("clean", "orders")
    assert perhaps(*again, again=reading(subscribe="orders"), clean=reading(subscribe="raw")) == {
        "clean": [],
        "again": [],
    }
    two = sending("a", None), sending("b", None), table("c")
    reads = {name: reading(subscribe="t") for name in "abc"}
    assert perhaps(*two, **reads) == {"a": [], "b": [], "c": ["a", "b"]}


def test_a_flow_may_read_what_it_has_written() -> None:
    assert order(sending("a", "again"), a=reading(subscribe="orders,again")) == {"a": []}


def test_links_within_a_circle_order_nothing_and_those_out_of_it_do() -> None:
    """a -> t1 -> b -> t2 -> a, and c reads t2; d writes a topic that b reads."""
    found = order(
        table("c"),
        sending("a", "t1"),
        sending("b", "t2"),
        sending("d", "t3"),
        a=reading(subscribe="t2"),
        b=reading(subscribe="t1,t3"),
        c=reading(subscribe="t2"),
    )
    assert found == {"a": [], "d": [], "b": ["d"], "c": ["b"]}


def test_a_circle_of_a_topic_and_a_table_keeps_the_order_of_the_table() -> None:
    found = order(sending("send", "t", "kept"), table("kept"), kept=reading(subscribe="t"))
    assert found == {"kept": [], "send": ["kept"]}


def test_options_that_are_wrong_are_left_to_the_query() -> None:
    assert topics_read(SERVERS) is None
    assert topics_read(SERVERS | {"subscribe": "a", "assign": "x"}) is None
