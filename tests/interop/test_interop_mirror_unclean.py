"""Spark mirrors a cluster of Apache Kafka that has an unclean leader election: the copier says so, and stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.blocking import Admin
from barnabas.client.values import NewTopic
from barnabas.core.errors import KafkaError
from barnabas.spark.connection import LogClient
from barnabas.spark.mirror.errors import MirrorDataLossError
from barnabas.testing.process import BrokerProcess
from tests.interop.mixed_cluster import MixedCluster
from tests.interop.spark_connector import running_session
from tests.progress import wait_until
from tests.system.spark.broker import Topics, values
from tests.system.spark.mirror.clusters import OFFSETS, OFFSETS_PARTITIONS, Pair, read_all

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1", "retention.ms": "-1"}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("later", [10, 60], ids=["shorter", "longer"])
def test_records_that_an_unclean_election_removes_stop_the_copier(tmp_path: Path, later: int) -> None:
    """Broker 1 is the controller; the topic is on the brokers 2 and 3."""
    roles = {1: "broker,controller", 2: "broker", 3: "broker"}
    with (
        MixedCluster(tmp_path / "source", roles) as cluster,
        BrokerProcess(tmp_path / "target") as target,
        running_session([], {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}) as spark,
    ):
        cluster.start(dict.fromkeys(roles, "kafka"))
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            created = admin.create_topics([NewTopic("t", replica_assignment={0: [2, 3]}, configs=UNCLEAN)])
            assert not isinstance(created["t"], KafkaError)
        servers = (cluster.bootstrap, target.bootstrap_servers)
        clients = [LogClient({"bootstrap.servers": address}) for address in servers]
        pair = Pair(spark, servers, *(Topics(at, client) for at, client in zip(servers, clients, strict=True)))
        pair.target.create(OFFSETS, OFFSETS_PARTITIONS, cleanup_policy="compact")
        pair.target.create("A.t")
        pair.source.produce("t", values(50))
        cluster.wait_in_sync("t", (2, 3))
        cluster[3].stop()
        pair.source.produce("t", values(30, start=50))
        plan = pair.plan({"t": "A.t"})
        pair.copy(plan)
        cluster[2].kill()
        cluster[3].start("kafka")  # it has never had the last 30 records, and leads
        pair.source.produce("t", values(later, start=100))
        with pair.copying(plan) as copier:
            wait_until(lambda: copier.failure() is not None, "the copier has failed")
            failure = copier.failure()
        assert isinstance(failure, MirrorDataLossError), failure
        assert "t-0" in str(failure)
        assert [int(one.value or b"") for one in read_all(servers[1], "A.t")] == list(range(80))
        for client in clients:
            client.close()
