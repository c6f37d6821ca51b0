"""`barnabas top`: the rows that come from two samples, and how they are drawn."""

from __future__ import annotations

import io

from rich.console import Console

from barnabas.cli.watch.top_rows import BrokerRow, GroupRow, TopicRow, TopOrder, TopRows, build_rows
from barnabas.cli.watch.top_view import headline, view
from barnabas.client.cluster.metadata import BrokerAddress, TopicDescription, TopicPartitionInfo
from barnabas.client.values import (
    ClusterDescription,
    GroupListing,
    GroupState,
    LogDirDescription,
    ReplicaSize,
)
from barnabas.console.sampling.sampler import ClusterSample
from barnabas.core.ids import TopicPartition

A0, B0, I0 = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("__internal", 0)


def sample(at_ms: int, end_a: int, lag: int | None) -> ClusterSample:
    directory = LogDirDescription(
        "/data", {A0: ReplicaSize(500, 0, False), B0: ReplicaSize(2000, 0, False)}, 10_000, 7_000
    )
    return ClusterSample(
        at_ms,
        ClusterDescription("c", 1, (BrokerAddress(1, "h1", 9092), BrokerAddress(2, "h2", 9092)), frozenset({2})),
        {
            "a": TopicDescription("a", partitions=(TopicPartitionInfo("a", 0, 1, 0, (1, 2), (1,)),)),
            "b": TopicDescription("b", partitions=(TopicPartitionInfo("b", 0, -1, 0, (2,), (2,)),)),
            "__internal": TopicDescription(
                "__internal", is_internal=True, partitions=(TopicPartitionInfo("__internal", 0, 1, 0, (1,), (1,)),)
            ),
        },
        {A0: end_a, B0: 5, I0: 9},
        {1: {"/data": directory}},
        {"a": 500, "b": 2000},
        [GroupListing("g", "consumer", GroupState.STABLE)],
        {} if lag is None else {"g": lag},
    )


def test_rates_and_states() -> None:
    rows = build_rows(sample(1_000, 100, 80), sample(3_000, 150, 60))
    assert rows == TopRows(
        "c", 3_000, 25.0, 3, 1, 1,
        (BrokerRow(1, "h1:9092", "up", 2, 2, 2500, 7_000), BrokerRow(2, "h2:9092", "down", 0, 0, 0, None)),
        (TopicRow("a", 1, 25.0, 500, 1, 0), TopicRow("b", 1, 0.0, 2000, 0, 1)),
        (GroupRow("g", "Stable", 60, -10.0, 6.0),),
    )  # fmt: skip


def test_the_first_sample_and_one_after_a_failure_have_no_rates() -> None:
    for before in (None, ClusterSample(1_000, problem="no broker answers")):
        rows = build_rows(before, sample(3_000, 150, None))
        assert rows.rate is None
        assert [topic.rate for topic in rows.topics] == [None, None]
        assert rows.groups == (GroupRow("g", "Stable", None, None, None),)
    again = build_rows(sample(1_000, 100, None), sample(3_000, 20, None))
    assert again.topics[-1].rate == 0.0, "a topic that was created again"


def test_orders() -> None:
    before, now = sample(1_000, 100, 0), sample(2_000, 150, 0)
    names = {order: [t.topic for t in build_rows(before, now, order, internal=True).topics] for order in TopOrder}
    assert names == {
        TopOrder.RATE: ["a", "b", "__internal"],
        TopOrder.SIZE: ["b", "a", "__internal"],
        TopOrder.NAME: ["__internal", "a", "b"],
    }
    assert TopOrder.NAME.next() is TopOrder.RATE


def drawn(rows: TopRows, height: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100, height=height).print(view(rows, height, "q quit"))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_view_fits_the_terminal_and_says_what_is_left_out() -> None:
    rows = build_rows(sample(1_000, 100, 80), sample(3_000, 150, 60))
    many = TopRows(
        "c", 3_000, 1.0, 50, 0, 0, rows.brokers, tuple(TopicRow(f"t{n:02}", 1, 1.0, 1, 0, 0) for n in range(50)),
        rows.groups,
    )  # fmt: skip
    lines = drawn(many, 24)
    assert len(lines) <= 24
    assert any(line.startswith("TOPIC (and 39 more)") for line in lines), lines
    assert "1 of 2 brokers up" in headline(rows)
    assert "25.0 records/s" in headline(rows)
    text = "\n".join(drawn(rows, 40))
    for part in ("down", "under-replicated", "offline", "-10.0", "6 s", "6.8 KiB"):
        assert part in text, text


def test_a_cluster_that_does_not_answer() -> None:
    rows = build_rows(None, ClusterSample(1_000, problem="no broker answers"))
    assert drawn(rows, 24) == ["no broker answers", "q quit"]
