"""The client against a real broker: ours, embedded; or any, named by BARNABAS_TEST_BOOTSTRAP."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pyarrow as pa
import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.blocking import Consumer
from barnabas.client.blocking_producer import Producer
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.client.errors import NoOffsetError, SerializationError, TransactionStateError
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import (
    EARLIEST,
    LATEST,
    ConfigChange,
    ConfigResource,
    GroupState,
    NewTopic,
    OffsetAndMetadata,
)
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import partition_for_key
from barnabas.core.ids import TopicPartition


def partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(4)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_produced_records_are_consumed_unchanged(servers: str, topic: str, codec: str) -> None:
    headers = [("h", b"1"), ("none", None)]
    async with AsyncProducer(bootstrap_servers=servers, compression_type=codec) as producer:
        for number in range(500):
            await producer.send(
                topic, b"v%d" % number, key=b"k%d" % number, timestamp=1_700_000_000_000, headers=headers
            )
        await producer.send(topic, None, key=b"tombstone")
    async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions(topic))
        found = []
        while len(found) < 501:
            found += await consumer.poll(5_000)
        assert {record.key: record.value for record in found if record.value} == {
            b"k%d" % number: b"v%d" % number for number in range(500)
        }
        assert all(record.partition == partition_for_key(record.key, 4) for record in found)
        assert all(tuple(record.headers) == tuple(headers) for record in found if record.value)
        assert all(consumer.lag(partition) == 0 for partition in partitions(topic))


async def test_columns_in_and_out(servers: str, topic: str) -> None:
    count = 20_000
    table = pa.table({"id": [f"k{i % 100}" for i in range(count)], "data": [b"%d" % i for i in range(count)]})
    async with AsyncProducer(bootstrap_servers=servers, compression_type="lz4") as producer:
        written = await producer.send_arrow(topic, table, key="id", value="data")
        assert {metadata.topic for metadata in written} == {topic}
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        ends = await admin.list_offsets(dict.fromkeys(partitions(topic), LATEST))
        ranges = [OffsetRange(p, 0, end.offset) for p, end in ends.items() if not isinstance(end, KafkaError)]
        assert sum(r.end for r in ranges) == count
        values: list[bytes] = []
        async for partition, batch in PartitionReader(admin.cluster).arrow(
            ranges, columns=("key", "value", "partition")
        ):
            assert set(batch["partition"].to_pylist()) == {partition.partition}
            assert {partition_for_key(key, 4) for key in batch["key"].to_pylist()} == {partition.partition}
            values += batch["value"].to_pylist()
    assert sorted(values) == sorted(b"%d" % i for i in range(count))
    async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions(topic))
        rows = 0
        while rows < count:
            batch = await consumer.poll_arrow(5_000)
            assert batch is not None
            rows += batch.num_rows
        assert rows == count


class Log(RebalanceListener):
    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.rounds = 0

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.owned |= set(partitions)
        self.rounds += 1

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.owned -= set(partitions)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_group_shares_partitions_and_takes_over_from_a_closed_member(
    servers: str, topic: str, strategy: str
) -> None:
    group = f"group-{uuid4().hex[:8]}"
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 100,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for number in range(400):
            await producer.send(topic, b"%d" % number, partition=number % 4)
    first, second, log = AsyncConsumer(settings), AsyncConsumer(settings), Log()
    seen: list[bytes] = []

    async def drive(consumer: AsyncConsumer) -> None:
        records = await consumer.poll(100)
        seen.extend(record.value for record in records)
        await consumer.commit()

    try:
        first.subscribe([topic], log)
        while len(first.assignment()) < 4:
            await drive(first)
        second.subscribe([topic])
        while len(first.assignment()) != 2 or len(second.assignment()) != 2:
            await asyncio.gather(*(_tolerant(drive, consumer) for consumer in (first, second)))
        assert first.assignment() | second.assignment() == set(partitions(topic))
        assert log.owned == first.assignment()
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            described = (await admin.describe_groups([group]))[group]
            assert not isinstance(described, KafkaError)
            assert described.state is GroupState.STABLE
            assert {m.assignment for m in described.members} == {first.assignment(), second.assignment()}
            refused = (await admin.delete_groups([group]))[group]
            assert refused is not None and refused.code is ErrorCode.NON_EMPTY_GROUP
        await second.close()
        while len(first.assignment()) < 4 or len(set(seen)) < 400:
            await _tolerant(drive, first)
    finally:
        await first.close()
        await second.close()
    assert set(seen) == {b"%d" % number for number in range(400)}
    assert log.owned == set()


async def _tolerant(drive: object, consumer: AsyncConsumer) -> None:
    """A commit may be refused while the group rebalances; the next one makes up for it."""
    try:
        await drive(consumer)  # type: ignore[operator]
    except KafkaError as error:
        if error.code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            raise


async def test_positions(servers: str, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number * 1_000)
    async with AsyncConsumer(bootstrap_servers=servers, group_id=f"g-{topic}", auto_offset_reset="none") as consumer:
        consumer.assign([zero])
        with pytest.raises(NoOffsetError, match=r"auto\.offset\.reset"):
            await consumer.poll(5_000)
        consumer.seek(zero, 7)
        assert [r.offset for r in await consumer.poll(5_000)] == [7, 8, 9]
        await consumer.seek_to_timestamp(1_700_000_003_500, zero)
        assert await consumer.position(zero) == 4
        assert [r.offset for r in await consumer.poll(5_000, max_records=2)] == [4, 5]
        consumer.pause(zero)
        assert await consumer.poll(20) == []
        consumer.resume(zero)
        assert (await consumer.poll(5_000))[0].offset == 6
        consumer.seek_to_end()
        assert await consumer.position(zero) == 10
        await consumer.commit({zero: OffsetAndMetadata(3, "note")})
        assert (await consumer.committed([zero]))[zero] == OffsetAndMetadata(3, "note")
        assert await consumer.beginning_offsets([zero]) == {zero: 0}


async def test_a_record_that_cannot_be_deserialized_can_be_passed(servers: str, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for value in (b"1", b"2", b"three", b"4"):
            await producer.send(topic, value, partition=0)
    async with AsyncConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", value_deserializer=int
    ) as consumer:
        consumer.assign([zero])
        assert [record.value for record in await consumer.poll(5_000)] == [1, 2]
        for _ in range(2):
            with pytest.raises(SerializationError, match=r"offset 2 of .* seek to 3"):
                await consumer.poll(5_000)
        consumer.seek(zero, 3)
        assert [record.value for record in await consumer.poll(5_000)] == [4]


async def test_admin_from_end_to_end(servers: str, topic: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        twice = await admin.create_topics([NewTopic(topic), NewTopic("no/slash")])
        assert {name: error.code for name, error in twice.items() if isinstance(error, KafkaError)} == {
            topic: ErrorCode.TOPIC_ALREADY_EXISTS,
            "no/slash": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        resource = ConfigResource.topic(topic)
        assert await admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", "12345")]}) == {
            resource: None
        }
        async with asyncio.timeout(10):  # a broker hears of the change when it replays the metadata log
            value = None
            while value != "12345":
                configs = (await admin.describe_configs([resource], include_synonyms=True))[resource]
                assert not isinstance(configs, KafkaError)
                value = configs["retention.ms"].value
        assert not configs["retention.ms"].is_default
        assert configs["segment.bytes"].is_default
        assert (await admin.describe_cluster()).brokers
        elected = await admin.elect_leaders([TopicPartition(topic, 0), TopicPartition(topic, 9)])
        assert {p.partition: error.code for p, error in elected.items() if error is not None} == {
            0: ErrorCode.ELECTION_NOT_NEEDED,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert topic in {listing.name for listing in await admin.list_topics()}
        group, zero = f"g-{topic}", TopicPartition(topic, 0)
        assert await admin.alter_group_offsets(group, {zero: 0}) == {zero: None}
        assert await admin.list_group_offsets(group) == {zero: OffsetAndMetadata(0)}
        assert await admin.reset_group_offsets(group, EARLIEST) == {zero: OffsetAndMetadata(0)}
        assert group in {listing.group_id for listing in await admin.list_groups()}
        assert await admin.delete_groups([group]) == {group: None}


def test_the_blocking_clients(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=1) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=1) for number in range(1_000)]
        assert sent[-1].result(10).offset == 999
        producer.flush()
        assert all(record.done() for record in sent)
        with pytest.raises(KafkaError, match="no partition 9"):
            producer.send(topic, b"x", partition=9).result(10)
    with Consumer(bootstrap_servers=servers, group_id=f"g-{topic}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        values = []
        for record in consumer:
            values.append(record.value)
            if len(values) == 1_000:
                break
        consumer.commit()
        assert consumer.position(TopicPartition(topic, 1)) == 1_000
    assert values == [b"%d" % number for number in range(1_000)]


async def test_transactions(servers: str, topic: str) -> None:
    """Committed, aborted, raised; offsets with them; an older producer is fenced."""
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    settings = {"bootstrap.servers": servers, "transactional.id": f"t-{topic}", "linger.ms": 0}
    producer, newer = AsyncProducer(settings), AsyncProducer(settings)
    try:
        await producer.init_transactions()
        with pytest.raises(TransactionStateError, match="begin_transaction"):
            await producer.send(topic, b"outside")
        for round_ in range(3):
            async with producer.transaction():
                for number in range(4):
                    await producer.send(topic, b"committed %d.%d" % (round_, number), partition=number % 2)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted", partition=0)
                    await producer.send(topic, b"dropped", partition=1)
                    raise ZeroDivisionError
        async with producer.transaction():
            await producer.send_offsets_to_transaction({zero: 5}, f"g-{topic}")
        await newer.init_transactions()
        with pytest.raises(KafkaError) as fenced:
            async with producer.transaction():
                await producer.send(topic, b"fenced", partition=1)
        assert fenced.value.code is ErrorCode.PRODUCER_FENCED
    finally:
        await producer.close()
        await newer.close()
    consumer = AsyncConsumer(
        bootstrap_servers=servers,
        group_id=f"g-{topic}",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        consumer.assign([zero, one])
        assert (await consumer.committed([zero]))[zero] == OffsetAndMetadata(5)
        consumer.seek_to_beginning()
        found: list[bytes] = []
        while len(found) < 12:
            found += [record.value for record in await consumer.poll(5_000)]
        assert sorted(found) == sorted(b"committed %d.%d" % (r, n) for r in range(3) for n in range(4))
        assert await consumer.poll(100) == []
        assert {consumer.lag(partition) for partition in (zero, one)} == {0}
