"""The page of metrics of a node under load: its names, labels and values."""

from __future__ import annotations

import asyncio
import re

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, KafkaError
from barnabas.client.values import NewTopic
from barnabas.core.telemetry import render
from barnabas.core.telemetry.table import METRICS, MetricKind
from barnabas.core.telemetry.table.kafka_rows import REMOTE_ROWS
from barnabas.server.node.server import Node
from barnabas.testing.embedded import AsyncEmbeddedBroker

_SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)\Z")
SOMETIMES = {
    # only with an authorizer, TLS or SASL, an error, tiered topics, a link, a scrape or a push before
    "barnabas_authorizer_acls", "barnabas_authorizer_decisions", "barnabas_client_metric",
    "barnabas_link_lag_bytes", "barnabas_link_lag_records", "barnabas_link_lag_seconds", "barnabas_link_partitions",
    "barnabas_link_skipped_offsets", "barnabas_link_trouble",
    "barnabas_log_cleaner_uncleanable_since_seconds", "barnabas_metrics_build_seconds",
    "barnabas_net_authentications_total", "barnabas_net_expired_sessions_total",
    "barnabas_net_failed_authentications_total", "barnabas_net_unauthenticated_connections",
    "barnabas_client_metrics_pushes_total", "barnabas_otlp_pushes_total",
    "kafka_server_authorizer_metrics_acls_total_count",
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "kafka_server_fetcherlagmetrics_consumerlag",  # of followers: tests/system/monitoring
    "kafka_server_group_coordinator_metrics_share_group_count",
    "kafka_server_socket_server_metrics_failed_authentication_total",
    "kafka_server_socket_server_metrics_successful_authentication_total",
    "barnabas_remote_reads_waiting", *(row.name for row in REMOTE_ROWS),
}  # fmt: skip


def samples(node: Node) -> dict[str, float]:
    """The samples of the page, by name and labels."""
    found: dict[str, float] = {}
    for line in render(node.metrics).splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, name
            found[name] = float(value)
    return found


def family(sample: str) -> str:
    """The name of the metric of a sample."""
    name = sample.partition("{")[0]
    for ending in ("_bucket", "_sum", "_count"):
        stem = name.removesuffix(ending)
        if name.endswith(ending) and stem in METRICS and METRICS[stem].kind is MetricKind.HISTOGRAM:
            return stem
    return name


async def use(servers: str) -> None:
    """Produce, consume, commit, and fail to produce once."""
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic("t", 2, 1)])
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for _ in range(10):
            await producer.send_and_wait("t", b"x" * 100, partition=0)
    async with AsyncConsumer(
        bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(["t"])
        seen = 0
        async for _record in consumer:
            seen += 1
            if seen == 4:
                await consumer.commit()
                break


@pytest.mark.timeout(120)
def test_every_metric_of_the_table_is_served() -> None:
    async def main() -> dict[str, float]:
        async with AsyncEmbeddedBroker() as broker:
            await use(broker.bootstrap_servers)
            node = broker.node
            assert node is not None
            assert node.broker is not None
            await node.broker.monitor.look()
            return samples(node)

    found = asyncio.run(main())
    names = {family(sample) for sample in found}
    assert names <= METRICS.keys(), names - METRICS.keys()
    assert METRICS.keys() - names <= SOMETIMES, METRICS.keys() - names - SOMETIMES
    for sample in found:
        row = METRICS[family(sample)]
        labels = set(re.findall(r'(\w+)="', sample.partition("{")[2]))
        assert labels - {"le"} <= set(row.labels), sample
    topic = "kafka_server_brokertopicmetrics_"
    expected = {
        f'{topic}messagesin_total{{topic="t"}}': 10,
        "kafka_server_replicamanager_underreplicatedpartitions": 0,
        "kafka_controller_kafkacontroller_activecontrollercount": 1,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
        "kafka_controller_kafkacontroller_activebrokercount": 1,
        'kafka_server_raftmetrics_current_state{current_state="leader"}': 1,
        'kafka_log_log_logendoffset{topic="t",partition="0"}': 10,
        'kafka_cluster_partition_insyncreplicascount{topic="t",partition="0"}': 1,
        'kafka_topic_partition_current_offset{topic="t",partition="0"}': 10,
        'kafka_topic_partition_oldest_offset{topic="t",partition="0"}': 0,
        "kafka_brokers": 1,
        "kafka_network_socketserver_expiredconnectionskilledcount": 0,
        'barnabas_ready_part{part="quorum"}': 1,
        "barnabas_quorum_known": 1,
        "kafka_server_kafkaserver_brokerstate": 3,
        "barnabas_metadata_lag": 0,
    }
    assert {sample: found[sample] for sample in expected} == expected
    assert found[f'{topic}bytesin_total{{topic="t"}}'] >= 1000
    assert found[f'{topic}bytesout_total{{topic="t"}}'] >= 1000
    assert found[f"{topic}bytesin_total"] > found[f'{topic}bytesin_total{{topic="t"}}'], "the internal topics count"
    lag = found['kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"}']
    assert lag + found['kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="0"}'] == 10
    assert lag + found['kafka_consumergroup_current_offset_sum{consumergroup="g",topic="t"}'] == 10
    assert 0 < found["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"] <= 1


def test_errors_and_elections_are_counted() -> None:
    async def main() -> tuple[dict[str, float], dict[str, float]]:
        async with AsyncEmbeddedBroker() as broker:
            node = broker.node
            assert node is not None
            before = samples(node)
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic("t", 1, 1)])
                with pytest.raises(KafkaError):
                    for error in (await admin.create_topics([NewTopic("t", 1, 1)])).values():
                        if error is not None:
                            raise error
                await admin.delete_topics(["t"])
            return before, samples(node)

    before, after = asyncio.run(main())
    error = 'kafka_network_requestmetrics_errors_total{request="CreateTopics",error="TOPIC_ALREADY_EXISTS"}'
    assert (before.get(error, 0), after[error]) == (0, 1)
    partitions = "kafka_controller_kafkacontroller_globalpartitioncount"
    assert before[partitions] == after[partitions] == 0
    assert after['kafka_network_requestmetrics_totaltimems_count{request="CreateTopics"}'] == 2
