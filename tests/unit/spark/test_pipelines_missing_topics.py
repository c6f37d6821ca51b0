"""Which topics that flows read do not exist yet."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark import connection
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.pipelines import missing_topics as checks
from barnabas.spark.pipelines.missing_topics import TopicChecks, missing_text, missing_topics
from barnabas.spark.source.positions import SourceSubscription

SERVERS = {"kafka.bootstrap.servers": "h:1"}


class Cluster:
    """A client of a cluster with one topic."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def reach(self) -> None:
        if self.error is not None:
            raise self.error

    def partitions(self, subscription: SourceSubscription) -> list[TopicPartition]:
        named = {*subscription.topics, *(tp.topic for tp in subscription.assigned)}
        return [TopicPartition("orders", p) for p in range(2) if "orders" in named]


def test_a_query_waits_for_topics_only_if_it_is_told_to() -> None:
    client: Any = Cluster()
    some = SourceSubscription(topics=("orders", "payments"))
    with pytest.raises(
        SparkSourceError, match=r"cannot read the topics payments: they do not exist.*missingTopics=wait"
    ):
        connection.require_partitions(client, some)
    expected = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert connection.require_partitions(client, some, waits=True) == expected
    assert connection.require_partitions(client, SourceSubscription(topics=("payments",)), waits=True) == []


def test_the_topics_of_all_sources_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "connect", lambda settings: Cluster())
    sources = [
        SERVERS | {"subscribe": "orders,payments"},
        SERVERS | {"assign": '{"invoices": [0]}'},
        SERVERS | {"subscribepattern": "none.*"},
        SERVERS,  # the query says what is wrong with its options
    ]
    assert missing_topics(sources) == ["invoices", "payments"]


def test_a_flow_is_asked_about_once_and_waits_until_its_query_has_seen_the_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "connect", lambda settings: Cluster())
    topics = TopicChecks()
    for _ in range(2):
        topics.ask("f", [SERVERS | {"subscribe": "a,b"}])
    topics.ask("none", [])
    topics._thread.shutdown()  # waits for the answer
    assert [*topics.answers(), *topics.answers()] == [("f", ["a", "b"])]
    assert (topics.of("f", ()), topics.of("f", {"b"}), topics.of("none", ())) == (["a", "b"], ["a"], [])


def test_brokers_that_do_not_answer_are_left_to_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "connect", lambda settings: Cluster(SparkSourceError("no broker answers")))
    topics = TopicChecks()
    topics.ask("f", [SERVERS | {"subscribe": "a"}])
    topics._thread.shutdown()
    assert (list(topics.answers()), topics.of("f", ())) == ([], [])


def test_the_text_is_a_sentence() -> None:
    assert missing_text(["a"]).startswith("waits for the topic a, which does not exist yet")
    assert missing_text(["a", "b"]).startswith("waits for the topics a, b, which do not exist yet")
