"""The replication settings of `barnabas cluster up`: any one broker may die if there are several."""

from __future__ import annotations

import pytest

from barnabas.cli.cluster.up import replication_settings
from barnabas.cli.session import parse_settings


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (9, 3, 2)])
def test_replication_settings_depend_on_the_number_of_brokers(brokers: int, copies: int, in_sync: int) -> None:
    assert parse_settings(replication_settings(brokers)) == {
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "mirror.state.topic.replication.factor": str(copies),
        "mirror.state.topic.min.isr": str(in_sync),
    }
