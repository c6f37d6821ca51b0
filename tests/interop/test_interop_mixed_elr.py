"""Eligible leader replicas (KIP-966) in one cluster of Apache Kafka and Barnabas.

A broker that stops in order leaves its epoch in its directory. The next process registers with that epoch, so that the
controller knows that the replicas have lost nothing. Here the next process is the other program's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.interop.mixed_cluster import MixedCluster, Program
from tests.interop.test_interop_mixed_brokers import PARTITIONS, SETTINGS, expected, produce
from tests.progress import wait_until
from tests.system.transactions.exactly_once import read_committed

ROLES = {1: "controller", 2: "broker", 3: "broker", 4: "broker"}
TOPIC = "careful"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("mine", "other"), [("kafka", "barnabas"), ("barnabas", "kafka")])
def test_a_replica_that_stopped_in_order_leads_and_a_killed_one_does_not(
    tmp_path: Path, mine: Program, other: Program
) -> None:
    """The controller and broker 2 run `mine`; brokers 3 and 4 change from one program to the other."""
    with MixedCluster(tmp_path, ROLES, replicas=3, settings=SETTINGS) as cluster:
        cluster.start({1: mine, 2: mine, 3: other, 4: other})
        with cluster.admin() as admin:
            admin.create_topic(TOPIC, PARTITIONS, 3)
        two_replicas_acknowledge(cluster)
        cluster.wait_in_sync(TOPIC, (2, 3, 4))

        cluster[4].stop()
        produce(cluster, TOPIC, range(100))
        cluster[3].stop()  # one replica is left, too few for min.insync.replicas: 3 becomes eligible
        cluster.wait_in_sync(TOPIC, (2,))
        cluster[2].kill()
        cluster[3].start(mine)
        wait_until(lambda: cluster.leaders(TOPIC) == [3] * PARTITIONS, "the eligible replica leads")
        cluster[4].start(mine)
        cluster.wait_in_sync(TOPIC, (3, 4))
        produce(cluster, TOPIC, range(100, 200))
        cluster[2].start(mine)
        cluster.wait_in_sync(TOPIC, (2, 3, 4))
        assert read_committed(cluster.bootstrap, TOPIC, PARTITIONS) == expected(200)

        cluster.lead(TOPIC, 2)
        cluster[4].stop()
        cluster[3].kill()  # a killed process may have lost records: it registers with the epoch -1
        cluster.wait_in_sync(TOPIC, (2,))
        cluster[2].kill()
        cluster[3].start(other)
        wait_until(lambda: cluster.leaders(TOPIC) == [-1] * PARTITIONS, "no replica may lead")
        cluster[2].start(mine)
        wait_until(lambda: cluster.leaders(TOPIC) == [2] * PARTITIONS, "the last leader leads")
        cluster[4].start(other)
        cluster.wait_in_sync(TOPIC, (2, 3, 4))
        produce(cluster, TOPIC, range(200, 300))
        assert read_committed(cluster.bootstrap, TOPIC, PARTITIONS) == expected(300)


def two_replicas_acknowledge(cluster: MixedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    two = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[two])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(20)
