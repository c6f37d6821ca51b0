"""One cluster of Apache Kafka 3.9 and Barnabas, at the feature levels of 3.9; and what happens above these levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import test_interop_mixed_brokers as brokers
from tests.interop.jars import OLDER_VERSION
from tests.interop.mixed_cluster import MixedCluster, Program
from tests.progress import wait_until

ROLES = {1: "broker,controller", 2: "broker"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("first", "second"), [("kafka", "barnabas"), ("barnabas", "kafka")])
def test_an_older_kafka_shares_a_cluster_with_barnabas(tmp_path: Path, first: Program, second: Program) -> None:
    with MixedCluster(tmp_path, ROLES, settings=brokers.SETTINGS, version=OLDER_VERSION) as cluster:
        cluster.start({1: first, 2: second})
        brokers.test_records_are_replicated_in_both_directions_and_survive_a_kill(cluster)
        brokers.test_a_group_goes_on_when_its_coordinator_moves(cluster, "classic")
        brokers.test_transactions_go_on_when_their_coordinator_moves(cluster)
        brokers.test_a_broker_stops_in_order_and_runs_the_other_program_there_and_back(cluster)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_that_does_not_support_the_levels_is_kept_out_and_the_log_says_why(tmp_path: Path) -> None:
    with MixedCluster(tmp_path / "new", ROLES, settings=brokers.SETTINGS) as cluster:
        cluster.start({1: "barnabas"})
        cluster[2].version = OLDER_VERSION
        cluster[2].launch("kafka")
        reason = "metadata.version 4.3-IV0, of which the node supports"
        # A node that reads the metadata before it has asked to join ends by itself, with a reason of its own.
        unreadable = "UnsupportedVersionException: Can't read version"
        wait_until(
            lambda: reason in cluster[1].logs() or unreadable in cluster[2].logs(), "a log says why it may not join"
        )
