"""Apache Kafka as the source of a backup, and as the target of a restore."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.backup.restoring.plan import Method
from barnabas.backup.verifying import verify_backup
from barnabas.client import AsyncConsumer, AsyncProducer
from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import ConfigChange, ConfigResource, NewTopic, OffsetAndTimestamp
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing import AsyncEmbeddedBroker
from tests.interop.apache_kafka import ApacheKafka
from tests.system.backup.backups import back_up, committed_values, is_equal, restore, store_in, write

pytestmark = pytest.mark.interop
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def fill(admin: AsyncAdmin, servers: str) -> None:
    """Compressed batches, transactions, deleted records, a compacted topic with rewritten batches, and a group."""
    await admin.create_topics(
        [
            NewTopic("orders", 2, 1, {"retention.ms": "99999999999"}),
            NewTopic("stamped", 1, 1, {"message.timestamp.type": "LogAppendTime"}),
        ]
    )
    await write(admin, "orders", 400, "first")
    await write(admin, "stamped", 10, "stamped", 1)
    async with AsyncProducer(bootstrap_servers=servers, transactional_id="t") as producer:
        await producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            for number in range(4):
                await producer.send_and_wait("orders", value=f"{commit}-{number}".encode(), partition=number % 2)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    await write(admin, "orders", 40, "after")
    await admin.delete_records({T1: 17})
    await admin.alter_group_offsets("readers", {T0: 150, T1: 215})


async def ends(admin: AsyncAdmin) -> list[int]:
    found = await admin.list_offsets({T0: -1, T1: -1})
    return [answer.offset for answer in found.values() if isinstance(answer, OffsetAndTimestamp)]


async def position(servers: str, partition: TopicPartition) -> bytes | None:
    """The value of the record at which the group `readers` goes on."""
    settings = {"group.id": "readers", "isolation.level": "read_committed", "enable.auto.commit": False}
    async with AsyncConsumer(settings | {"bootstrap.servers": servers}) as consumer:
        consumer.assign([partition])
        while not (records := await consumer.poll(1000)):
            pass
        return records[0].value


def test_a_backup_moves_from_kafka_to_us_and_back(tmp_path: Path) -> None:
    async def scenario(kafka: str) -> None:
        store, back = store_in(tmp_path / "backup"), store_in(tmp_path / "back")
        async with AsyncAdmin(bootstrap_servers=kafka) as source:
            await fill(source, kafka)
            run = await back_up(source, store)
            assert run.notes == ()
            assert await is_equal(source, store)
            there = await ends(source)
            values = await committed_values(kafka, T0, T1)
            places = [await position(kafka, partition) for partition in (T0, T1)]
        async with AsyncEmbeddedBroker() as broker, AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as ours:
            servers = broker.bootstrap_servers
            assert (await restore(ours, store)).method is Method.LINK
            assert await is_equal(ours, store)
            assert await ends(ours) == there
            assert await committed_values(servers, T0, T1) == values
            assert [await position(servers, partition) for partition in (T0, T1)] == places
            await ours.incremental_alter_configs(
                {ConfigResource.topic("orders"): [ConfigChange("retention.ms", "88888888888")]}
            )
            await back_up(ours, back)
            assert not (await verify_backup(back)).damage
        async with AsyncAdmin(bootstrap_servers=kafka) as target:
            await target.delete_topics(["orders", "stamped"])
            await target.delete_groups(["readers"])
            report = await restore(target, back)
            assert report.method is Method.PRODUCE
            assert await committed_values(kafka, T0, T1) == values
            assert await ends(target) == [len(part) for part in values]  # offsets are new: no holes, no markers
            assert [await position(kafka, partition) for partition in (T0, T1)] == places
            described = await target.describe_configs([ConfigResource.topic("orders"), ConfigResource.topic("stamped")])
            orders, stamped = described.values()
            assert not isinstance(orders, KafkaError)
            assert not isinstance(stamped, KafkaError)
            assert orders["retention.ms"].value == "88888888888"
            assert stamped["message.timestamp.type"].value == "LogAppendTime"

    with ApacheKafka(tmp_path).running() as kafka:
        asyncio.run(scenario(kafka.bootstrap))
