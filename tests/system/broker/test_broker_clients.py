"""librdkafka and kafka-python against the embedded broker, through their public APIs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from barnabas.testing import EmbeddedBroker
from tests.progress import Standstill


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
    yield made
    made.flush(5)


def drain(consumer: Consumer, count: int) -> list[bytes]:
    """Consumes `count` records or more. Raises AssertionError when no more records come."""
    found: list[bytes] = []
    standstill = Standstill(f"{count} records are consumed")
    while len(found) < count:
        standstill.check(len(found))
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            found.append(message.value())
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_round_trip_with_every_codec(broker: EmbeddedBroker, topic: str, group: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 20})
    sent = [b"%d " % i * 30 for i in range(2000)]
    for value in sent:
        producer.produce(topic, value, key=value[:3], headers={"n": b"1"})
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert drain(consumer, 2000) == sent
    consumer.close()


def test_group_shares_partitions_and_resumes_at_its_committed_offsets(
    broker: EmbeddedBroker, admin: AdminClient, producer: Producer, topic: str, group: str
) -> None:
    admin.create_topics([NewTopic(topic, 4)])[topic].result(60)
    for i in range(400):
        producer.produce(topic, b"%d" % i, partition=i % 4)
    producer.flush(60)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
    first, second = Consumer(settings), Consumer(settings)
    first.subscribe([topic])
    assert len(drain(first, 400)) == 400
    first.commit(asynchronous=False)
    second.subscribe([topic])
    standstill = Standstill("both consumers have two partitions")
    while not (len(first.assignment()) == len(second.assignment()) == 2):
        standstill.check((len(first.assignment()), len(second.assignment())))
        first.poll(0.05)
        second.poll(0.05)
    assert {p.partition for c in (first, second) for p in c.assignment()} == {0, 1, 2, 3}
    first.close()
    second.close()
    for i in range(10):
        producer.produce(topic, b"new %d" % i)
    producer.flush(60)
    third = Consumer(settings)
    third.subscribe([topic])
    assert sorted(drain(third, 10)) == sorted(b"new %d" % i for i in range(10))
    third.close()


def test_librdkafka_joins_with_the_consumer_group_protocol(
    broker: EmbeddedBroker, admin: AdminClient, producer: Producer, topic: str, group: str
) -> None:
    admin.create_topics([NewTopic(topic, 3)])[topic].result(60)
    for i in range(300):
        producer.produce(topic, b"%d" % i, partition=i % 3)
    producer.flush(60)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    assert len(drain(consumer, 300)) == 300
    consumer.commit(asynchronous=False)
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert (described.type.name, len(described.members)) == ("CONSUMER", 1)
    consumer.close()


def test_kafka_python_produces_and_consumes(broker: EmbeddedBroker, topic: str, group: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for i in range(100):
        producer.send(topic, b"%d" % i)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    found = [next(consumer).value for _ in range(100)]
    assert found == [b"%d" % i for i in range(100)]
    consumer.commit()
    assert consumer.committed(KafkaPythonPartition(topic, 0)) == 100
    consumer.close()


def test_admin_creates_and_changes_topics_partitions_and_configs(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, config={"retention.ms": "1000000"})])[topic].result(60)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 2)])[topic].result(60)
    admin.create_topics([NewTopic(topic + "-dry", 2)], validate_only=True)[topic + "-dry"].result(60)
    assert topic + "-dry" not in admin.list_topics(timeout=60).topics
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    assert len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 5
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(60)
    assert (described["retention.ms"].value, described["retention.ms"].source) == ("1000000", 1)
    assert described["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(60)
    described = admin.describe_configs([resource])[resource].result(60)
    assert described["cleanup.policy"].value in ("delete,compact", "compact,delete")
    assert described["retention.ms"].is_default
    admin.delete_topics([topic])[topic].result(60)
    assert topic not in admin.list_topics(timeout=60).topics


def test_admin_describes_brokers_and_groups_and_changes_offsets_and_records(
    admin: AdminClient, broker: EmbeddedBroker, producer: Producer, topic: str, group: str
) -> None:
    for i in range(20):
        producer.produce(topic, b"%d" % i)
    producer.flush(60)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    drain(consumer, 20)
    consumer.commit(asynchronous=False)
    groups = {g.group_id: g.state.name for g in admin.list_consumer_groups().result(60).valid}
    assert groups[group] == "STABLE"
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert [m.assignment.topic_partitions[0].topic for m in described.members] == [topic]
    consumer.close()
    with pytest.raises(KafkaException, match=r"NOT_EMPTY|GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups(["no-such-group"])["no-such-group"].result(60)
    admin.delete_consumer_groups([group])[group].result(60)
    partition = TopicPartition(topic, 0)
    assert admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(60).offset == 20
    admin.delete_records([TopicPartition(topic, 0, 5)])[partition].result(60)
    assert admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(60).offset == 5
    cluster = admin.describe_cluster().result(60)
    assert [f"{n.host}:{n.port}" for n in cluster.nodes] == [broker.bootstrap_servers]
    resource = ConfigResource(ResourceType.BROKER, str(cluster.nodes[0].id))
    configs = admin.describe_configs([resource])[resource].result(60)
    assert configs["log.segment.bytes"].value == "1073741824"
    assert configs["offsets.topic.num.partitions"].source == 4
