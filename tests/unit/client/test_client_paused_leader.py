"""Behind a leader that answers nothing, requests are repeated at its successor as soon as the brokers know it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.cluster import cluster as cluster_module
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import DeliveryFailedError
from barnabas.client.offsets import offsets_at
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import LATEST
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.transport import outgoing_connection
from barnabas.protocol.wire.apis import ApiKey
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_client_reader import batch

REQUEST_TIMEOUT_MS = 60_000
"""Longer than a test may take: a request that waits for its time-out fails the test."""
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(outgoing_connection, "STALLED_S", 0.02)
    monkeypatch.setattr(cluster_module, "STALLED_S", 0.02)
    yield


def two_brokers() -> FakeCluster:
    """Broker 1 leads partition 0, broker 2 leads partition 1."""
    fake = FakeCluster(brokers=2)
    fake.add_topic("t", 2)
    return fake


def elect(fake: FakeCluster, leader: int) -> None:
    log = fake.log("t")
    log.leader, log.leader_epoch = leader, log.leader_epoch + 1


async def asked(fake: FakeCluster, key: ApiKey, count: int) -> None:
    """Wait until the brokers have got `count` requests of a kind."""
    while sum(1 for _, seen, _ in fake.requests if seen is key) < count:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_records_arrive_in_order_at_the_next_leader(idempotent: bool) -> None:
    fake = two_brokers()
    settings: dict[str, Any] = {"linger_ms": 0, "enable_idempotence": idempotent, "delivery_timeout_ms": 120_000}
    cluster = fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS)
    async with cluster, AsyncProducer(cluster=cluster, request_timeout_ms=REQUEST_TIMEOUT_MS, **settings) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        await producer.send_and_wait("t", b"other", partition=1)
        fake.paused.add(1)
        metadata = sum(1 for _, key, _ in fake.requests if key is ApiKey.METADATA)
        sent = []
        for number in range(1, 4):
            sent.append(await producer.send("t", b"%d" % number, partition=0))
            await asyncio.sleep(0.001)
        await asked(fake, ApiKey.METADATA, metadata + 2)  # the client asks for a successor that there is not yet
        assert not any(record.done() for record in sent)
        await producer.send_and_wait("t", b"another", partition=1)
        elect(fake, 2)
        assert [record.offset for record in await asyncio.gather(*sent)] == [1, 2, 3]
    assert fake.log("t").values() == [b"0", b"1", b"2", b"3"]


async def test_a_fetch_and_other_requests_go_to_the_next_leader() -> None:
    fake = two_brokers()
    fake.log("t").put(batch(b"a"))
    cluster = fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS)
    async with (
        cluster,
        AsyncConsumer(cluster=cluster, auto_offset_reset="earliest", fetch_max_wait_ms=1) as consumer,
    ):
        consumer.assign([T0, T1])
        seen: list[bytes] = []
        while b"a" not in seen:
            seen += [record.value for record in await consumer.poll(100)]
        fake.paused.add(1)
        fake.log("t").put(batch(b"b"))
        fake.log("t", 1).put(batch(b"c"))
        while b"c" not in seen:
            seen += [record.value for record in await consumer.poll(100)]
        ends = asyncio.create_task(offsets_at(cluster, {T0: LATEST}))
        metadata = sum(1 for _, key, _ in fake.requests if key is ApiKey.METADATA)
        await asked(fake, ApiKey.METADATA, metadata + 2)
        elect(fake, 2)
        while b"b" not in seen:
            seen += [record.value for record in await consumer.poll(100)]
        assert await ends == {T0: 2}
    assert seen == [b"a", b"c", b"b"]


async def test_a_paused_broker_that_no_client_was_connected_to() -> None:
    """The connection is accepted, and the handshake is not answered."""
    fake = two_brokers()
    fake.ports = {2: 9002, 1: 9001}
    fake.paused.add(1)
    fake.log("t").put(batch(b"b"))
    fake.log("t", 1).put(batch(b"c"))
    cluster = fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS, bootstrap_servers="fake:9002")
    async with (
        cluster,
        AsyncConsumer(cluster=cluster, auto_offset_reset="earliest", fetch_max_wait_ms=1) as consumer,
        AsyncProducer(cluster=cluster, linger_ms=0) as producer,
    ):
        consumer.assign([T1, T0])
        seen: list[bytes] = []
        sent = await producer.send("t", b"d", partition=0)
        consumer.seek(T0, 0)
        consumer.seek(T1, 0)
        while b"c" not in seen:
            seen += [record.value for record in await consumer.poll(100)]
        elect(fake, 2)
        assert (await sent).offset == 1
        while b"d" not in seen:
            seen += [record.value for record in await consumer.poll(100)]
    assert seen == [b"c", b"b", b"d"]


async def test_metadata_comes_from_another_broker_than_the_paused_one() -> None:
    fake = two_brokers()
    async with fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS) as cluster:
        await cluster.topic("t")
        await cluster.connection(1)
        await cluster.connection(2)
        for broker in (1, 2):
            fake.paused = {broker}
            await cluster.refresh(["t"])


async def test_metadata_comes_from_another_broker_than_the_one_that_rejects_what_it_leads() -> None:
    """A leader that is cut off from the cluster still names itself."""
    fake = two_brokers()
    async with fake.cluster() as cluster:
        for rejecting, other in ((1, 2), (2, 1)):
            elect(fake, rejecting)
            await cluster.refresh(["t"])
            await cluster.connection(1)
            await cluster.connection(2)
            cluster.note_error(T0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            before = len(fake.requests)
            await cluster.refresh(["t"])
            assert [(broker, key) for broker, key, _ in fake.requests[before:]] == [(other, ApiKey.METADATA)]


async def test_the_only_broker_is_asked_even_if_it_rejects_what_it_leads() -> None:
    fake = FakeCluster(brokers=1)
    fake.add_topic("t", 1)
    async with fake.cluster() as cluster:
        await cluster.topic("t")
        for is_connected in (True, False):
            cluster.note_error(T0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if not is_connected:
                (await cluster.connection(1)).abort()
            await cluster.refresh(["t"])


async def test_a_slow_broker_keeps_its_requests_while_it_leads() -> None:
    fake = two_brokers()
    async with fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS) as cluster:
        producer = AsyncProducer(cluster=cluster, linger_ms=0, request_timeout_ms=REQUEST_TIMEOUT_MS)
        await producer.send_and_wait("t", b"0", partition=0)
        connection = await cluster.connection(1)
        fake.paused.add(1)
        sent = await producer.send("t", b"1", partition=0)
        metadata = sum(1 for _, key, _ in fake.requests if key is ApiKey.METADATA)
        await asked(fake, ApiKey.METADATA, metadata + 3)
        assert connection.alive
        assert not sent.done()
        with pytest.raises(DeliveryFailedError):
            await producer.close(timeout_ms=0)
