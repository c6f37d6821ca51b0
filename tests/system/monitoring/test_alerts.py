"""Alert rules and a real Prometheus (`tests/system/monitoring/install.sh`)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from barnabas import Admin, Producer
from barnabas.client.values import NewTopic
from barnabas.testing.ports import free_ports
from barnabas.testing.process import BrokerProcess
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import wait_until
from tests.system.monitoring.prometheus import MONITORING, Prometheus, prometheus, promtool

pytestmark = pytest.mark.system

SETTINGS = [
    "default.replication.factor=3", "offsets.topic.replication.factor=3", "min.insync.replicas=2",
    "broker.session.timeout.ms=3000", "replica.lag.time.max.ms=3000", "controlled.shutdown.enable=false",
]  # fmt: skip


def test_rules_are_valid_and_each_alert_fires_and_clears() -> None:
    alerts = (MONITORING / "alerts.yml").read_text().count("- alert:")
    assert f"SUCCESS: {alerts} rules found" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts.test.yml")


def test_a_page_of_metrics_is_valid_and_scraped(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    broker = BrokerProcess(tmp_path / "data")
    broker.arguments = ["--metrics", f"http://127.0.0.1:{port}/metrics"]
    with broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"x").result()
        page = read(f"127.0.0.1:{port}")
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        assert not re.search("error|parse", checked.stderr), checked.stderr
        with prometheus(tmp_path, [f"127.0.0.1:{port}"]) as found:
            wait_until(lambda: found.value("sum(up)") == 1, "the node is scraped")
            wait_until(
                lambda: found.value('kafka_server_brokertopicmetrics_messagesin_total{topic="t"}') == 1,
                "the record is counted",
            )
            assert found.value("barnabas_ready") == 1


def test_followers_serve_their_lag_and_leaders_the_offsets_of_consumers(tmp_path: Path) -> None:
    cluster = ClusterProcess(tmp_path, settings=SETTINGS)
    ports = free_ports(3)
    for node_id, port in zip(cluster.broker_ids, ports, strict=True):
        cluster.node(node_id).arguments = ["--metrics", f"http://127.0.0.1:{port}/metrics"]
    with cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", replica_assignment={0: [1, 2, 3]})])
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            producer.send("t", b"x").result()
        of_leader = 'kafka_topic_partition_current_offset{topic="t",partition="0"} 1\n'
        of_follower = 'kafka_server_fetcherlagmetrics_consumerlag{clientId="Replica",topic="t",partition="0"} 0\n'

        def served(line: str) -> list[int]:
            return [
                node for node, port in zip(cluster.broker_ids, ports, strict=True) if line in read(f"127.0.0.1:{port}")
            ]

        wait_until(lambda: served(of_leader) == [1], "the leader has the high watermark")
        wait_until(lambda: served(of_follower) == [2, 3], "the followers have no lag")
        brokers = "kafka_brokers 3\n"
        wait_until(lambda: len(served(brokers)) == 1, "only the active controller counts the brokers")


def read(address: str) -> str:
    with urlopen(f"http://{address}/metrics", timeout=30) as response:
        text: str = response.read().decode()
    return text


@contextmanager
def watched_cluster(folder: Path) -> Iterator[tuple[ClusterProcess, Prometheus]]:
    """Three nodes, each with a page of metrics, and Prometheus."""
    cluster = ClusterProcess(folder, settings=SETTINGS)
    ports = free_ports(3)
    for node_id, port in zip(cluster.broker_ids, ports, strict=True):
        cluster.node(node_id).arguments = ["--metrics", f"http://127.0.0.1:{port}/metrics"]
    with cluster, prometheus(folder, [f"127.0.0.1:{port}" for port in ports]) as found:
        wait_until(lambda: found.value("sum(up)") == 3, "the nodes are scraped")
        yield cluster, found


def wait_firing(found: Prometheus, alerts: set[str]) -> None:
    wait_until(lambda: alerts <= found.firing(), f"{sorted(alerts)} fire", progress=lambda: sorted(found.firing()))


def wait_quiet(found: Prometheus) -> None:
    wait_until(
        lambda: found.value("sum(up)") == 3 and not found.firing(),
        "no alert fires",
        progress=lambda: sorted(found.firing()),
    )


@pytest.mark.slow
def test_alerts_of_a_cluster_whose_brokers_are_killed(tmp_path: Path) -> None:
    with watched_cluster(tmp_path) as (cluster, found):
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([
                NewTopic("alone", replica_assignment={0: [3]}),
                NewTopic("three", 3, 3, configs={"min.insync.replicas": "3"}),
            ])  # fmt: skip
        wait_quiet(found)
        cluster.node(3).kill()
        wait_firing(
            found,
            {
                "BarnabasOfflinePartitions", "BarnabasUnderMinIsr", "BarnabasUnderReplicated", "BarnabasBrokerDown",
                "BarnabasNodeUnreachable",
            },
        )  # fmt: skip
        assert "BarnabasNoActiveController" not in found.firing()
        cluster.node(3).start()
        wait_firing(found, {"BarnabasUncleanElection"})  # of the partition whose only replica was killed
        wait_quiet(found)
        cluster.node(1).kill()
        cluster.node(2).kill()
        wait_firing(
            found,
            {"BarnabasNoActiveController", "BarnabasQuorumLost", "BarnabasNodeNotReady", "BarnabasNodeUnreachable"},
        )
        cluster.node(1).launch()
        cluster.node(2).launch()
        cluster.wait_ready()
        wait_quiet(found)
