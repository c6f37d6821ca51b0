"""A cluster that Apache Kafka 4.3.1 founded: its metadata log, and how it described its configs.

The log is that of a single node which was formatted, made the topics `flights` and `weather`, grew `weather`, set a
broker config, deleted `weather` and was shut down in order. The configs are its DescribeConfigs answers as librdkafka
gave them: value, source, sensitive, read-only.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.describe_configs import DescribeOptions, describe_broker, describe_topic
from barnabas.server.metadata.features import SUPPORTED_FEATURES
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.ports import CommittedBatch
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.records.codec import decode_record
from tests.configs import controller_config

HERE = Path(__file__).parent
STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/var/lib/kafka",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def load() -> ClusterImage:
    publisher = Publisher(ClusterImage(cluster_id="c"))
    loader = Loader(publisher)
    log = (HERE / "kafka_4_3_1_cluster_metadata.log").read_bytes()
    for position, header in iter_batches(log):
        if not header.is_control:
            records = []
            for record in iter_records(log, position, header):
                assert record.value is not None
                records.append(decode_record(record.value))
            loader.on_commit(
                CommittedBatch(header.base_offset, header.partition_leader_epoch, header.max_timestamp, tuple(records))
            )
    return publisher.image


def test_the_log_gives_the_cluster_kafka_had() -> None:
    image = load()
    assert image.offset == 37
    assert image.topics.names() == ["flights"]
    assert dict(image.configs.topic("flights")) == {"retention.ms": "1000"}
    assert dict(image.configs.broker(1)) == {"log.cleaner.threads": "2"}
    assert image.features.metadata_version == 30
    assert image.features.level("transaction.version") == 2
    broker = image.brokers.get(1)
    assert broker is not None
    assert (broker.epoch, broker.fenced, broker.in_controlled_shutdown) == (14, True, True)
    # Kafka 4.3 leaves nobody in sync when the last replica shuts down: it is eligible instead (KIP-966).
    partition = image.topics.partition("flights", 2)
    assert partition is not None
    assert (partition.isr, partition.elr, partition.leader) == ((), (1,), -1)


@pytest.mark.parametrize(("previous_epoch", "recovery_state"), [(14, 0), (-1, 1)], ids=["in order", "after a crash"])
def test_a_node_that_takes_the_cluster_over_leads_its_partitions(previous_epoch: int, recovery_state: int) -> None:
    controller = Controller(controller_config(node_id=1), load())
    ctx = DecideContext(now_ms=0, rng=random.Random(0), settings=controller.settings, version=4)
    kafkas = controller.image.brokers.get(1)
    assert kafkas is not None
    request = BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="c",
        incarnation_id=UUID(int=77),
        features=[
            Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
            for name, levels in SUPPORTED_FEATURES.items()
        ],
        log_dirs=list(kafkas.log_dirs),  # meta.properties keeps their ids
        previous_broker_epoch=previous_epoch,
    )
    registered = controller.decide(controller.image, request, ctx)
    assert isinstance(registered.response, BrokerRegistrationResponse)
    epoch = registered.response.broker_epoch
    assert epoch > 37
    controller.apply(controller.image, registered.records)
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
    unfenced = controller.decide(controller.image, beat, ctx)
    controller.apply(controller.image, unfenced.records)
    flights = controller.image.topics.get("flights")
    assert flights is not None
    assert [(p.leader, p.isr, p.elr, p.last_known_elr, p.leader_recovery_state) for p in flights.partitions] == [
        (1, (1,), (), (), recovery_state)
    ] * 3


def test_configs_are_described_as_kafka_describes_them() -> None:
    image = load()
    view = ConfigView(image.configs, node_id=1, static=STATIC)
    expected = json.loads((HERE / "kafka_4_3_1_describe_configs.json").read_text(encoding="utf-8"))
    seen = {
        "topic": describe_topic(view, "flights", DescribeOptions()),
        "broker": describe_broker(view, DescribeOptions()),
    }
    for what, results in seen.items():
        found = {
            result.name: [result.value, result.config_source, result.is_sensitive, result.read_only]
            for result in results
            if result.name != "broker.id"  # Kafka writes node.id into it
            and not result.name.startswith("barnabas.")  # not a config of Kafka
        }
        assert found == expected[what]
