"""The table of metrics: the names in both families, and pages in them."""

from __future__ import annotations

import re

import pytest

from barnabas.core.telemetry import Metrics, render
from barnabas.core.telemetry.exposition import Exposition
from barnabas.core.telemetry.table import METRICS, MetricKind, NameFamily

BYTES_IN = METRICS["kafka_server_brokertopicmetrics_bytesin_total"]


@pytest.mark.parametrize(
    ("mbean", "strimzi", "confluent"),
    [
        (
            "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
            "kafka_server_brokertopicmetrics_bytesin_total",
            "kafka_server_brokertopicmetrics_bytesinpersec",
        ),
        (
            "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        ),
        (
            "kafka.server:type=socket-server-metrics (connection-count)",
            "kafka_server_socket_server_metrics_connection_count",
            "kafka_server_socketservermetrics_connection_count",
        ),
        (
            "kafka.server:type=raft-metrics (high-watermark)",
            "kafka_server_raftmetrics_high_watermark",
            "kafka_server_raft_metrics_high_watermark",
        ),
    ],
)
def test_names_follow_the_rules_of_the_exporters(mbean: str, strimzi: str, confluent: str) -> None:
    (row,) = [row for row in METRICS.values() if row.mbean == mbean]
    assert (row.name_in(NameFamily.STRIMZI), row.name_in(NameFamily.CONFLUENT)) == (strimzi, confluent)


def test_every_row_is_complete() -> None:
    for row in METRICS.values():
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", row.name), row.name
        assert row.help.endswith((".", "topics.")), row.name
        assert row.source, row.name
        if row.kind is MetricKind.COUNTER:
            assert row.name.endswith(("_total", "_count")), row.name


def test_a_page_in_confluents_names() -> None:
    metrics = Metrics()
    metrics.counter(BYTES_IN.name, topic="t").add(3)
    metrics.gauge("kafka_server_replicamanager_leadercount").set(2)
    assert render(metrics, NameFamily.CONFLUENT) == (
        f"# HELP kafka_server_brokertopicmetrics_bytesinpersec {BYTES_IN.help}\n"
        "# TYPE kafka_server_brokertopicmetrics_bytesinpersec untyped\n"
        'kafka_server_brokertopicmetrics_bytesinpersec{topic="t"} 3\n'
        "# HELP kafka_server_replicamanager_leadercount Partitions that this broker leads.\n"
        "# TYPE kafka_server_replicamanager_leadercount gauge\n"
        "kafka_server_replicamanager_leadercount 2\n"
    )


def test_a_name_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(KeyError):
        Exposition().family("barnabas_something")
