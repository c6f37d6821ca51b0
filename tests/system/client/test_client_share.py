"""Share groups (KIP-932): records shared like a queue's, acknowledged one by one, implicitly or explicitly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.blocking import ShareConsumer
from barnabas.client.blocking_producer import Producer
from barnabas.client.errors import AcknowledgementError
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.share.session import AcknowledgeType
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition

TIME_S = 60.0
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


async def share_group(servers: str, **configs: str) -> str:
    """A group that reads from the beginning."""
    name = f"share-{uuid4().hex[:8]}"
    changes = [ConfigChange("share.auto.offset.reset", "earliest")]
    changes += [ConfigChange(key.replace("_", "."), value) for key, value in configs.items()]
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.incremental_alter_configs({ConfigResource.group(name): changes})
    return name


async def fill(servers: str, topic: str, count: int, **settings: object) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    async with AsyncProducer(bootstrap_servers=servers, **settings) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % 4)
    return values


async def until(step: Callable[[], object], done: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIME_S):
        while not done():
            await step()  # type: ignore[misc]


async def test_two_consumers_share_every_partition_and_each_record_goes_to_one(servers: str, topic: str) -> None:
    group = await share_group(servers)
    values = await fill(servers, topic, 400, batch_size=200)
    seen: list[bytes] = []
    settings: dict[str, object] = {"bootstrap.servers": servers, "group.id": group, "max.poll.records": 20}
    async with AsyncShareConsumer(settings) as first, AsyncShareConsumer(settings) as second:
        first.subscribe([topic])
        second.subscribe(topic)

        async def step() -> None:
            for consumer in (first, second):
                for record in await consumer.poll(100):
                    assert record.delivery_count == 1
                    seen.append(record.value)

        await until(step, lambda: len(set(seen)) == len(values))
        for consumer in (first, second):  # close() would release the records of the last poll
            assert await consumer.commit() is not None
    assert sorted(seen) == sorted(values), "each record once"
    async with AsyncShareConsumer(settings) as third:
        third.subscribe([topic])
        assert await third.poll(1_500) == [], "all of it was acknowledged"


async def test_every_kind_of_acknowledgement(servers: str, topic: str) -> None:
    group = await share_group(servers)
    await fill(servers, topic, 4)
    told: dict[int, KafkaError | None] = {}

    def on_acknowledged(partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
        told[partition.partition] = error

    settings: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
    }
    async with AsyncShareConsumer(settings, on_acknowledged=on_acknowledged) as consumer:
        consumer.subscribe([topic])
        deliveries: dict[bytes, list[int | None]] = {}
        kinds = {b"0": ACCEPT, b"1": RELEASE, b"2": REJECT, b"3": RENEW}

        async def step() -> None:
            for record in await consumer.poll(200):
                known = deliveries.setdefault(record.value, [])
                known.append(record.delivery_count)
                consumer.acknowledge(record, kinds[record.value] if len(known) == 1 else ACCEPT)
            assert not any((await consumer.commit()).values())

        await until(step, lambda: sum(map(len, deliveries.values())) == 6)
        assert deliveries == {b"0": [1], b"1": [1, 2], b"2": [1], b"3": [1, 1]}
        assert consumer.acquisition_lock_timeout_ms == 30_000
        assert await consumer.poll(700) == []
        assert told == dict.fromkeys(range(4), None)


async def test_explicit_mode_requires_an_acknowledgement_of_every_record(servers: str, topic: str) -> None:
    group = await share_group(servers)
    await fill(servers, topic, 1)
    settings: dict[str, object] = {"bootstrap.servers": servers, "group.id": group}
    async with AsyncShareConsumer(settings, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        records = []

        async def step() -> None:
            records.extend(await consumer.poll(500))

        await until(step, lambda: bool(records))
        with pytest.raises(AcknowledgementError, match="1 records of the last poll"):
            await consumer.poll(0)
        consumer.acknowledge(records[0], RELEASE)
        assert await consumer.commit() == {TopicPartition(topic, 0): None}
        with pytest.raises(AcknowledgementError, match="not held by this consumer"):
            consumer.acknowledge(records[0])
        with pytest.raises(AcknowledgementError, match="explicit"):
            await anext(aiter(consumer))
    async with AsyncShareConsumer(settings) as implicit:
        implicit.subscribe([topic])
        with pytest.raises(AcknowledgementError, match=r"share\.acknowledgement\.mode=explicit"):
            implicit.acknowledge(records[0])
        assert (await anext(aiter(implicit))).value == records[0].value


async def test_unacknowledged_records_of_a_share_consumer_go_to_another(servers: str, topic: str) -> None:
    """Closing frees what is not acknowledged at once; what comes too often is given up."""
    group = await share_group(servers)
    await fill(servers, topic, 1)
    settings: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
    }

    async def deliver(kind: AcknowledgeType | None) -> int | None:
        async with AsyncShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            async with asyncio.timeout(TIME_S):
                records = []
                while not records:
                    records = await consumer.poll(500)
            if kind is not None:
                consumer.acknowledge(records[0], kind)
            return records[0].delivery_count

    assert await deliver(None) == 1
    again = await deliver(RELEASE)
    assert again in (1, 2), "brokers differ in whether a delivery without an acknowledgement counts"
    for attempt in range(again + 1, 6):
        assert await deliver(RELEASE) == attempt
    async with AsyncShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        assert await consumer.poll(1_500) == [], "five deliveries are the limit"


def test_the_blocking_share_consumer(servers: str, topic: str) -> None:
    group = asyncio.run(share_group(servers))
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(50):
            producer.send(topic, b"%d" % number)
    with ShareConsumer(bootstrap_servers=servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        seen = set()
        for record in consumer:
            seen.add(record.value)
            if len(seen) == 50:
                break
        assert set(consumer.commit().values()) <= {None}


async def test_a_group_of_another_kind(servers: str, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"group\.id"):
        AsyncShareConsumer(bootstrap_servers=servers)
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.alter_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): 0})
    async with AsyncShareConsumer(bootstrap_servers=servers, group_id=f"g-{topic}") as consumer:
        consumer.subscribe([topic])
        with pytest.raises(KafkaError) as wrong:
            await consumer.poll(10_000)
        assert wrong.value.code is ErrorCode.GROUP_ID_NOT_FOUND
