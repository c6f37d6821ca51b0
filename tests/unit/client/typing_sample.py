"""What a user writes, for the type checkers: `reveal`ed by assignment, never run. mypy --strict must find nothing."""

from __future__ import annotations

from barnabas import (
    AcknowledgeType,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    KafkaError,
    Producer,
    RebalanceListener,
    ShareConsumer,
    SubscriptionPattern,
    TopicPartition,
)
from barnabas.client import ProducerSettings
from barnabas.client.values import (
    ConfigResource,
    CreatedTopic,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PreparedTransaction,
    RecordMetadata,
)
from barnabas.registry import RegistryClient


class Listener(RebalanceListener):
    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        print([str(partition) for partition in partitions])


def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
    print(metadata, error)


def blocking() -> None:
    with Producer({"bootstrap.servers": "localhost:9092"}, linger_ms=5) as producer:
        sent = producer.send("t", b"v", key=b"k", headers=[("h", b"1")], on_delivery=on_delivery)
        metadata: RecordMetadata = sent.result(10)
        where: TopicPartition = metadata.topic_partition
        with producer.transaction() as transactional:
            transactional.send("t", b"v", partition=where.partition)
        kept: PreparedTransaction = producer.prepare_transaction()
        committed: bool = producer.complete_transaction(kept)
        print(committed)
    with Consumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["t"], Listener())
        consumer.subscribe(SubscriptionPattern("t.*"))
        for record in consumer:
            offset: int = record.offset
            print(offset, record.value)
        owned: frozenset[TopicPartition] = consumer.assignment()
        found: dict[TopicPartition, OffsetAndMetadata | None] = consumer.committed(owned)
        times: dict[TopicPartition, OffsetAndTimestamp | None] = consumer.offsets_for_times(dict.fromkeys(owned, 0))
        lag: int | None = consumer.lag(next(iter(owned)))
        print(found, times, lag)
    with Admin(bootstrap_servers="localhost:9092") as admin:
        created: dict[str, CreatedTopic | KafkaError] = admin.create_topics([NewTopic("t", 3, 1)])
        configs = admin.describe_configs([ConfigResource.topic("t")])
        print(created, configs)
    with ShareConsumer(bootstrap_servers="localhost:9092", group_id="g") as shared:
        for record in shared.poll(1_000):
            shared.acknowledge(record, AcknowledgeType.RELEASE)
        outcome: dict[TopicPartition, KafkaError | None] = shared.commit()
        print(outcome)


async def asynchronous() -> None:
    async with AsyncProducer(bootstrap_servers="localhost:9092", transactional_id="t") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            metadata: RecordMetadata = await producer.send_and_wait("t", b"v")
            await producer.send_offsets_to_transaction({metadata.topic_partition: 5}, "g")
        future = await producer.send("t", b"v")
        again: RecordMetadata = await future
        print(again)
    async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        async for record in consumer:
            print(record.key, record.timestamp)
        async for batch in consumer.arrow(columns=["value"]):
            print(batch)
        await consumer.commit({TopicPartition("t", 0): 5})
    async with AsyncShareConsumer(bootstrap_servers="localhost:9092", group_id="g") as shared:
        async for record in shared:
            count: int | None = record.delivery_count
            print(count)
    async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
        topic: CreatedTopic = await admin.create_topic("t", 1, 1)
        print(topic)


def with_typed_settings(servers: list[str]) -> None:
    common: ProducerSettings = {"bootstrap_servers": servers, "security_protocol": "SSL", "acks": 1}
    with Producer(**common, value_serializer=str.encode) as producer:
        producer.send("t", "v")
    with Consumer({"linger.ms": "5"}, bootstrap_servers="localhost:9092", isolation_level="read_committed") as consumer:
        consumer.subscribe(["t"])
    with ShareConsumer(bootstrap_servers=servers, group_id="g", share_acknowledgement_mode="explicit"):
        pass
    with (
        Admin(bootstrap_servers=("a:1", "b:2"), default_api_timeout_ms=5_000),
        RegistryClient("http://r", timeout_ms=1),
    ):
        pass
