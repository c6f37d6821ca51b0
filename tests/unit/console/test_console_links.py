"""The pages of cluster links, over two embedded brokers: a source and a mirror."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client import Admin, Producer
from barnabas.client.admin.links import Link, LinkDescription, MirrorStatus
from barnabas.client.values import NewTopic
from barnabas.console.documents.problems import problems
from barnabas.console.sampling.link_samples import LinkSample, sample_of
from barnabas.console.sampling.sampler import ClusterSample
from barnabas.core.ids import TopicPartition
from barnabas.testing import EmbeddedBroker
from tests.unit.console.pages import Browser, console

QUICK = {"mirror.metadata.refresh.interval.ms": "200"}
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def linked() -> Iterator[Browser]:
    """A console of a cluster that mirrors the topic orders, two partitions with ten records, by the link paris."""
    with EmbeddedBroker() as source, EmbeddedBroker() as mirror:
        with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 2, 1)])
        with Producer(bootstrap_servers=source.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number, partition=number % 2).result(10)
        with Admin(bootstrap_servers=mirror.bootstrap_servers) as admin:
            secrets = {"ssl.keystore.password": "hush"}
            link = Link("paris", source.bootstrap_servers, secrets, ("orders",), groups=("g.*",), settings=QUICK)
            admin.create_link(link)
        with console(mirror.bootstrap_servers) as browser:
            yield browser


def until(browser: Browser, path: str, holds: Callable[[Any], bool]) -> Any:
    """The document at a path, as soon as it is as expected."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds(document := browser.document(path)):
        assert time.monotonic() < deadline, document
        time.sleep(0.05)  # the interval of a poll, not a time that must be enough
    return document


def mirrors(document: Any, state: str) -> bool:
    return [row["state"] for row in document["rows"]] == [state, state]


def test_a_link_is_listed_with_the_lag_of_its_mirrors(linked: Browser) -> None:
    document = until(
        linked, "/links", lambda d: d["rows"][0]["states"] == {"MIRRORING": 2} and d["rows"][0]["lag"] == 0
    )
    (row,) = document["rows"]
    assert (row["link"], row["partitions"], row["trouble"]) == ("paris", 2, "")
    text = linked.page("/links")
    assert '<a class="mono" href="/links/paris">paris</a>' in text
    assert "2 MIRRORING" in text


def test_a_link_shows_its_mirrors_and_hides_passwords(linked: Browser) -> None:
    document = until(linked, "/links/paris", lambda d: mirrors(d, "MIRRORING") and d["total_lag"] == 0)
    assert [(row["name"], row["source_end"], row["lag"]) for row in document["rows"]] == [
        ("orders-0", 5, 0),
        ("orders-1", 5, 0),
    ]
    assert (document["topics"], document["groups"]) == (["orders"], ["g.*"])
    assert document["settings"]["mirror.metadata.refresh.interval.ms"] == "200"
    assert "hush" not in str(document)
    text = linked.page("/links/paris")
    assert '<a href="/topics/orders">orders-0</a>' in text
    assert "hush" not in text
    assert [row["name"] for row in linked.document("/links/paris?q=ers-1")["rows"]] == ["orders-1"]
    assert linked.document("/links/lyon", 404) == {"error": "The link 'lyon' does not exist."}


def test_the_lag_is_sampled(linked: Browser) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while "No samples yet." in (text := linked.page("/links/paris")):
        assert time.monotonic() < deadline
        time.sleep(0.05)  # the interval of a poll, not a time that must be enough
    assert '<figcaption>Lag <span class="now line1">0</span></figcaption>' in text


def test_mirrors_are_paused_resumed_and_stopped(linked: Browser) -> None:
    until(linked, "/links/paris", lambda d: mirrors(d, "MIRRORING"))
    paused = linked.change("/links/paris/act", action="pause", topic="orders")
    assert paused["message"] == "pause was requested for orders of paris."
    until(linked, "/links/paris", lambda d: mirrors(d, "PAUSED"))
    assert (
        linked.change("/links/paris/act", action="resume")["message"] == "resume was requested for 1 topics of paris."
    )
    until(linked, "/links/paris", lambda d: mirrors(d, "MIRRORING"))
    refused = linked.change("/links/paris/act", 400, action="stop")
    assert refused["error"] == "action is one of pause, resume, recover, not 'stop'."
    assert linked.change("/links/paris/stop", 400, action="stop")["error"] == "Type 'paris' to confirm."
    linked.change("/links/paris/stop", action="stop", confirm="paris")
    stopped = until(linked, "/links/paris", lambda d: mirrors(d, "STOPPED"))
    assert [row["stopped_at"] for row in stopped["rows"]] == [5, 5]


def test_a_link_with_trouble_is_a_problem_of_the_overview() -> None:
    orders = TopicPartition("orders", 0)
    failed = MirrorStatus("paris", orders, "FAILED", 9, 4, 0, 0, "the source lost records")
    behind = MirrorStatus("paris", TopicPartition("orders", 1), "MIRRORING", 9, 3, 0, 0, "")
    other = MirrorStatus("lyon", orders, "MIRRORING", 9, 100, 0, 0, "")
    unknown = MirrorStatus("paris", TopicPartition("orders", 2), "NEW", -1, -1, -1, 0, "")
    described = LinkDescription(Link("paris", "source:9092"), 1, "The source does not answer.", ())
    assert sample_of(described, [failed, behind, other, unknown]).lag is None, "7 would leave out a partition"
    sample = sample_of(described, [failed, behind, other])
    assert sample == LinkSample(7, "The source does not answer.", ((orders, "the source lost records"),))
    assert problems(ClusterSample(1, links={"paris": sample})) == [
        {"level": "bad", "text": "The link paris: The source does not answer.", "link": "/links/paris"},
        {
            "level": "bad",
            "text": "The mirror orders-0 of link paris has failed: the source lost records",
            "link": "/links/paris",
        },
    ]
