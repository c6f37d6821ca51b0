"""`barnabas links` and `kafka-cluster-mirrors` against two brokers: the broker of the other tests has the mirrors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from barnabas.client.blocking import Admin
from barnabas.client.blocking_producer import Producer
from barnabas.client.values import NewTopic
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until
from tests.system.cli.conftest import Cli

pytestmark = pytest.mark.system
QUICK = "mirror.metadata.refresh.interval.ms=200"


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    with EmbeddedBroker() as running:
        yield running.bootstrap_servers


def fill(servers: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


@pytest.fixture
def orders(source: str) -> str:
    """A topic of the source with ten records."""
    topic = f"orders-{uuid4().hex[:8]}"
    with Admin(bootstrap_servers=source) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    fill(source, topic, 10)
    return topic


def wait_mirrored(cli: Cli, link: str) -> None:
    def has_all() -> bool:
        return [partition["lag"] for partition in cli("links", "describe", link, "--json").json["partitions"]] == [0]

    wait_until(has_all, "the mirror has all records")


def test_a_topic_moves_to_another_cluster_and_back(cli: Cli, broker: EmbeddedBroker, source: str, orders: str) -> None:
    link, back = f"link-{orders}", f"back-{orders}"
    created = cli("links", "create", link, "--source", source, "--topics", orders, "--config", QUICK)
    assert (created.code, "is created" in created.err) == (0, True)
    wait_mirrored(cli, link)
    assert link in cli("links", "list").out
    assert cli("links", "list", "--json").json[0]["link"]["name"] == link
    drilled = cli("links", "drill", link)
    assert (drilled.code, "would lose 0 records" in drilled.out) == (0, True), drilled
    (compared,) = cli("links", "verify", link, "--json").json
    assert (compared["end"], compared["differs_at"], compared["missing"]) == (10, None, 0)
    for verb in ("pause", "resume", "recover"):
        assert cli("links", verb, link, orders, "--json").json[0]["error"] is None
    assert cli("links", "failover", link, "--dry-run").code == 0
    wait_mirrored(cli, link)
    assert cli("links", "delete", link, "--yes").code == 1
    promoted = cli("links", "promote", link)
    assert (promoted.code, promoted.lines[-1].split()[0]) == (0, orders)
    fill(broker.bootstrap_servers, orders, 5)
    reversal = ("--source", broker.bootstrap_servers, "--to", source, "--link", back, "--config", QUICK)
    assert cli("links", "reverse", link, *reversal, "--dry-run").code == 0
    assert cli("links", "reverse", link, *reversal, "--yes").code == 0
    with Admin(bootstrap_servers=source) as admin:
        wait_until(
            lambda: [(s.lag, s.source_high_watermark) for s in admin.describe_mirrors([back])] == [(0, 15)],
            "the former source has the records of its mirror",
        )
    assert cli("links", "failover", back, "--yes", "--bootstrap-server", source).code == 0
    fill(source, orders, 1)
    assert cli("links", "start", link, orders).code == 0
    wait_mirrored(cli, link)
    assert cli("links", "delete", back, "--yes", "--bootstrap-server", source).code == 0
    assert cli("links", "alter", link, "--groups", "nobody").code == 0
    assert cli("links", "describe", link, "--json").json["link"]["groups"] == ["nobody"]


def test_kafkas_tool_makes_and_stops_mirrors(cli: Cli, source: str, orders: str, tmp_path: Path) -> None:
    link = f"tool-{orders}"
    config = tmp_path / "mirror.properties"
    config.write_text(f"bootstrap.servers={source}\nmirror.topics.include={orders}\n{QUICK}\n")
    tool = ("kafka-cluster-mirrors", "--mirror", link)
    assert cli(*tool, "--create", "--mirror-config", str(config)).code == 0
    assert link in cli("kafka-cluster-mirrors", "--list").lines
    wait_mirrored(cli, link)
    assert orders in cli(*tool, "--describe").out
    assert cli(*tool, "--describe", "--failed", "--json").json["partitions"] == []
    assert cli(*tool, "--pause", "--topics", orders).lines == [f"Topic {orders}: paused"]
    assert cli(*tool, "--stop").lines == [f"Topic {orders}: stopped"]
    assert cli(*tool, "--delete").code == 0
    assert cli(*tool, "--describe").code == 1
