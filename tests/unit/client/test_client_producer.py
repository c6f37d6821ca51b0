"""The producer against brokers that keep Kafka's rules and break in every way the script says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.errors import BufferFullError, ClientClosedError, DeliveryTimeoutError, SerializationError
from barnabas.client.producer.producer import AsyncProducer, ProducerRecord
from barnabas.client.serialization import json_serializer
from barnabas.client.values import RecordMetadata
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.hashing import partition_for_key
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.end_txn import EndTxnResponse
from barnabas.protocol.wire.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.unit.client.fake_cluster import DROP, SILENCE, FakeCluster, partitions_added


def producer_of(fake: FakeCluster, **settings: Any) -> AsyncProducer:
    return AsyncProducer(cluster=fake.cluster(), **{"linger_ms": 0, **settings})


def refuse(request: ProduceRequest, code: ErrorCode, **more: Any) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, **more)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def once(*answers: Callable[[ProduceRequest], Any]) -> Callable[[int, Any, int], Any]:
    """These answers to the first requests, the usual ones after that."""
    left = list(answers)
    return lambda broker_id, request, version: left.pop(0)(request) if left else None


async def test_a_record_arrives_with_everything() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 3)
    async with producer_of(fake) as producer:
        metadata = await producer.send_and_wait(
            "t", "värde", key=b"k", timestamp=123, headers=[("h", b"x"), ("n", None)]
        )
    expected = partition_for_key(b"k", 3)
    assert metadata == RecordMetadata("t", expected, 0, 123, 1, 6)
    (batch,) = fake.log("t", expected).batches
    header = read_header(batch)
    assert (header.record_count, header.base_sequence, header.producer_epoch) == (1, 0, 0)
    assert header.producer_id > 1000


async def test_records_are_batched_and_numbered() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with producer_of(fake, linger_ms=50) as producer:
        futures = [await producer.send("t", b"%d" % i) for i in range(100)]
        await producer.flush()
        assert [f.result().offset for f in futures] == list(range(100))
    assert len(fake.log("t").batches) == 1
    assert fake.log("t").values() == [b"%d" % i for i in range(100)]


async def test_flush_does_not_linger() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with producer_of(fake, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        future = await producer.send("t", b"x")
        await asyncio.wait_for(producer.flush(), 1)
        assert future.done()


@pytest.mark.parametrize(
    "fault",
    [
        lambda request: DROP,
        lambda request: refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        lambda request: refuse(request, ErrorCode.NOT_ENOUGH_REPLICAS),
        lambda request: refuse(request, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_what_can_be_retried_is(fault: Callable[[ProduceRequest], Any]) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.scripts[ApiKey.PRODUCE] = once(fault, fault)
    async with producer_of(fake) as producer:
        assert (await producer.send_and_wait("t", b"x")).offset == 0
    assert fake.log("t").values() == [b"x"]


async def test_an_acknowledgement_that_was_lost_is_no_duplicate() -> None:
    fake = FakeCluster()
    fake.add_topic("t")

    def written_but_dropped(request: ProduceRequest) -> Any:
        fake.produce(1, request, 13)
        return DROP

    fake.scripts[ApiKey.PRODUCE] = once(written_but_dropped, written_but_dropped)
    async with producer_of(fake) as producer:
        assert (await producer.send_and_wait("t", b"a")).offset == 0
        assert (await producer.send_and_wait("t", b"b")).offset == 1
    assert fake.log("t").values() == [b"a", b"b"]


async def test_a_refusal_is_final_and_leaves_no_gap() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.scripts[ApiKey.PRODUCE] = once(
        lambda request: refuse(request, ErrorCode.INVALID_RECORD, error_message="no key for a compacted topic")
    )
    async with producer_of(fake) as producer:
        with pytest.raises(KafkaError, match="no key for a compacted topic") as caught:
            await producer.send_and_wait("t", b"bad")
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert (await producer.send_and_wait("t", b"good")).offset == 0
    assert read_header(fake.log("t").batches[0]).base_sequence == 0


async def test_a_leader_hint_saves_the_metadata_round_trip() -> None:
    fake = FakeCluster(brokers=2)
    fake.add_topic("t")
    async with producer_of(fake) as producer:
        await producer.send_and_wait("t", b"a")
        asked = [key for _, key, _ in fake.requests].count(ApiKey.METADATA)
        fake.log("t").leader, fake.log("t").leader_epoch = 2, 7
        hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
        fake.scripts[ApiKey.PRODUCE] = once(
            lambda request: refuse(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint)
        )
        assert (await producer.send_and_wait("t", b"b")).offset == 1
        produced_by = [broker_id for broker_id, key, _ in fake.requests if key is ApiKey.PRODUCE]
        assert produced_by == [1, 1, 2]
        assert [key for _, key, _ in fake.requests].count(ApiKey.METADATA) <= asked + 1


async def test_a_batch_that_is_too_large_comes_in_parts() -> None:
    fake = FakeCluster()
    fake.add_topic("t")

    def at_most_ten(broker_id: int, request: ProduceRequest, version: int) -> Any:
        records = request.topic_data[0].partition_data[0].records
        too_large = read_header(bytes(records)).record_count > 10
        return refuse(request, ErrorCode.MESSAGE_TOO_LARGE) if too_large else None

    fake.scripts[ApiKey.PRODUCE] = at_most_ten
    async with producer_of(fake, linger_ms=20) as producer:
        futures = [await producer.send("t", b"%d" % i) for i in range(35)]
        results = [await future for future in futures]
    assert [metadata.offset for metadata in results] == list(range(35))
    assert fake.log("t").values() == [b"%d" % i for i in range(35)]


async def test_delivery_timeout_ends_the_waiting() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.scripts[ApiKey.PRODUCE] = lambda broker, request, version: refuse(request, ErrorCode.NOT_ENOUGH_REPLICAS)
    async with producer_of(fake, delivery_timeout_ms=60, request_timeout_ms=50) as producer:
        with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms"):
            await producer.send_and_wait("t", b"x")


async def test_after_a_batch_in_doubt_the_epoch_is_bumped() -> None:
    """Its sequence may have been used, so the next batch must not look like its successor (KIP-360)."""
    fake = FakeCluster()
    fake.add_topic("t")
    async with producer_of(fake, delivery_timeout_ms=80, request_timeout_ms=60) as producer:
        await producer.send_and_wait("t", b"a")
        fake.scripts[ApiKey.PRODUCE] = lambda *_: SILENCE
        with pytest.raises(BarnabasError):
            await producer.send_and_wait("t", b"lost")
        fake.scripts.clear()
        await producer.send_and_wait("t", b"b")
    headers = [read_header(batch) for batch in fake.log("t").batches]
    assert [(h.producer_epoch, h.base_sequence) for h in headers] == [(0, 0), (1, 0)]


async def test_after_a_batch_in_doubt_the_next_transaction_is_sent() -> None:
    """The abort has changed the epoch, which the partition of the batch adopts with the next transaction."""
    fake = FakeCluster()
    fake.add_topic("t")
    fake.scripts[ApiKey.ADD_PARTITIONS_TO_TXN] = partitions_added
    fake.scripts[ApiKey.END_TXN] = lambda *_: EndTxnResponse()
    producer = producer_of(fake, transactional_id="tx", delivery_timeout_ms=80, request_timeout_ms=60)
    await producer.init_transactions()
    producer.begin_transaction()
    await producer.send_and_wait("t", b"a")
    fake.scripts[ApiKey.PRODUCE] = lambda *_: SILENCE
    with pytest.raises(BarnabasError):
        await producer.send_and_wait("t", b"lost")
    del fake.scripts[ApiKey.PRODUCE]
    await producer.abort_transaction()
    producer.begin_transaction()
    await producer.send_and_wait("t", b"b")
    await producer.commit_transaction()
    await producer.close()
    headers = [read_header(batch) for batch in fake.log("t").batches]
    assert [header.base_sequence for header in headers] == [0, 0]
    assert headers[0].producer_id != headers[1].producer_id or headers[0].producer_epoch < headers[1].producer_epoch


async def test_acks_0_asks_for_no_answer() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with producer_of(fake, acks="0") as producer:
        metadata = await producer.send_and_wait("t", b"x")
        assert metadata.offset == -1
        assert (await producer.send_and_wait("t", b"y")).offset == -1
        await asyncio.sleep(0)
    assert fake.log("t").values() == [b"x", b"y"]
    assert not any(key is ApiKey.INIT_PRODUCER_ID for _, key, _ in fake.requests)


async def test_buffer_memory_holds_senders_back() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.scripts[ApiKey.PRODUCE] = lambda *_: SILENCE
    producer = producer_of(fake, buffer_memory=1_000, max_block_ms=30)
    with pytest.raises(BufferFullError, match=r"buffer\.memory"):
        for _ in range(100):
            await producer.send("t", b"x" * 100)
    fake.scripts.clear()
    for transport in list(fake.transports):
        transport.abort()
    await producer.send("t", b"room again")
    await producer.close()
    assert fake.log("t").values()[-1] == b"room again"


async def test_callbacks_and_interceptors_hear_of_everything() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    heard: list[tuple[str, Any, Any]] = []

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            record.value = record.value + b"!"
            return record

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: BarnabasError | None) -> None:
            heard.append(("interceptor", metadata, error))

    async with producer_of(fake, interceptors=[Interceptor()]) as producer:
        future = await producer.send("t", b"x", on_delivery=lambda m, e: heard.append(("callback", m, e)))
        metadata = await future
    assert heard == [("interceptor", metadata, None), ("callback", metadata, None)]
    assert fake.log("t").values() == [b"x!"]


async def test_a_callback_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    told: list[str] = []

    def fails(metadata: RecordMetadata | None, error: BarnabasError | None) -> None:
        told.append("called")
        raise ZeroDivisionError

    async with producer_of(fake) as producer:
        futures = [await producer.send("t", b"%d" % number, on_delivery=fails) for number in range(3)]
        assert [(await future).offset for future in futures] == [0, 1, 2]
        assert (await producer.send_and_wait("t", b"3")).offset == 3
    assert told == ["called"] * 3
    assert "A delivery callback or interceptor raised" in caplog.text


async def test_serializers() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with producer_of(fake, value_serializer=json_serializer) as producer:
        await producer.send_and_wait("t", {"a": [1, None]})
        with pytest.raises(SerializationError, match="value serializer failed for topic 't'"):
            await producer.send("t", object())
    assert fake.log("t").values() == [b'{"a":[1,null]}']
    async with producer_of(fake) as plain:
        with pytest.raises(SerializationError, match="A dict cannot be sent"):
            await plain.send("t", {})


async def test_after_close_nothing_is_taken() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    producer = producer_of(fake)
    await producer.send("t", b"x")
    await producer.close()
    await producer.close()
    assert fake.log("t").values() == [b"x"]
    with pytest.raises(ClientClosedError):
        await producer.send("t", b"y")


async def test_an_unknown_topic_and_partition() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with producer_of(fake, max_block_ms=300) as producer:
        await producer.send_and_wait("t", b"x")
        with pytest.raises(KafkaError, match="There is no topic 'nope'"):
            await producer.send("nope", b"x")
        with pytest.raises(KafkaError, match="no partition 4"):
            await producer.send("t", b"x", partition=4)
        with pytest.raises(KafkaError, match=r"max\.request\.size"):
            await producer.send("t", b"x" * 2_000_000)


def chaos(fake: FakeCluster, rng: random.Random, faults: int) -> Callable[[int, Any, int], Any]:
    """Every kind of trouble at random, `faults` times; then peace."""
    left = faults

    def script(broker_id: int, request: ProduceRequest, version: int) -> Any:
        nonlocal left
        if left <= 0 or rng.random() < 0.4:
            return None
        left -= 1
        match rng.randrange(6):
            case 0:
                return DROP
            case 1:
                fake.produce(broker_id, request, version)
                return DROP
            case 2:
                return refuse(request, ErrorCode.NOT_ENOUGH_REPLICAS)
            case 3:
                fake.produce(broker_id, request, version)
                return refuse(request, ErrorCode.REQUEST_TIMED_OUT)
            case 4:
                for log in fake.logs.values():
                    log.leader = rng.choice(list(fake.ports))
                    log.leader_epoch += 1
                return None
            case _:
                return refuse(request, ErrorCode.MESSAGE_TOO_LARGE) if _may_be_too_large(fake, request) else None

    return script


def _may_be_too_large(fake: FakeCluster, request: ProduceRequest) -> bool:
    """Batches of several records that have not been written before: a broker checks the size before it appends."""
    for data in request.topic_data[0].partition_data:
        header = read_header(bytes(data.records))
        _, recent = fake.log("t", data.index).producers.get(header.producer_id, (0, []))
        if header.record_count == 1 or (recent and recent[-1][1] >= header.base_sequence):
            return False
    return True


@pytest.mark.parametrize("seed", range(25))
async def test_nothing_is_lost_doubled_or_reordered(seed: int) -> None:
    rng = random.Random(seed)
    fake = FakeCluster(brokers=3)
    fake.add_topic("t", 4)
    fake.scripts[ApiKey.PRODUCE] = chaos(fake, rng, faults=40)
    async with producer_of(fake, linger_ms=rng.choice([0, 1, 3]), batch_size=rng.choice([0, 100, 400])) as producer:
        sent: dict[int, list[bytes]] = {index: [] for index in range(4)}
        futures = []
        for number in range(600):
            partition = rng.randrange(4)
            value = b"%d" % number
            sent[partition].append(value)
            futures.append((value, await producer.send("t", value, partition=partition)))
            if rng.random() < 0.05:
                await asyncio.sleep(0)
        results = [(value, await future) for value, future in futures]
    written = {partition: fake.log("t", partition).values() for partition in sent}
    assert written == sent, f"seed {seed}"
    assert all(written[metadata.partition][metadata.offset] == value for value, metadata in results)
