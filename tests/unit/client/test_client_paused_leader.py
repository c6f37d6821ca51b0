"""Behind a leader or coordinator that answers nothing, requests are repeated at its successor as soon as the brokers
know it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from barnabas.client.cluster import cluster as cluster_module
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import DeliveryFailedError
from barnabas.client.offsets import offsets_at
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import LATEST
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.transport import outgoing_connection
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnResponse
from barnabas.protocol.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.progress import until
from tests.unit.client.fake_cluster import SILENCE, FakeCluster, partitions_added
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
    await until(lambda: sum(1 for _, seen, _ in fake.requests if seen is key) >= count, f"{count} requests {key.name}")


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
            await asyncio.sleep(0.001)  # each record gets a batch of its own
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


# -- coordinators ------------------------------------------------------------------------------------------------------


async def asked_again(fake: FakeCluster, key: ApiKey) -> None:
    """Wait until the brokers have got two more requests of a kind."""
    await asked(fake, key, sum(1 for _, seen, _ in fake.requests if seen is key) + 2)


def brokers_of(fake: FakeCluster, key: ApiKey) -> list[int]:
    """The brokers that have answered requests of a kind, in order."""
    return [broker for broker, seen, _ in fake.requests if seen is key]


def member_of_t1(broker: int, request: Any, version: int) -> ConsumerGroupHeartbeatResponse:
    """A script for ConsumerGroupHeartbeat that assigns partition 1."""
    part = TopicPartitions(topic_id=UUID(int=100), partitions=[1])
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=max(request.member_epoch, 1),
        heartbeat_interval_ms=5,
        assignment=Assignment(topic_partitions=[part]),
    )


async def test_heartbeats_and_commits_go_to_the_next_coordinator() -> None:
    fake = two_brokers()
    fake.scripts[ApiKey.CONSUMER_GROUP_HEARTBEAT] = member_of_t1
    fake.log("t", 1).put(batch(b"a"))
    cluster = fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS)
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 1, "enable_auto_commit": False}
    async with (
        cluster,
        AsyncConsumer(cluster=cluster, group_id="g", group_protocol="consumer", **settings) as consumer,
    ):
        consumer.subscribe(["t"])
        assert (await consumer.getone()).value == b"a"
        await consumer.commit()
        fake.paused.add(1)
        commit = asyncio.create_task(consumer.commit({T1: 1}))
        await asked_again(fake, ApiKey.FIND_COORDINATOR)  # the client asks for a successor that there is not yet
        assert not commit.done()
        fake.coordinator = 2
        await commit
        assert brokers_of(fake, ApiKey.OFFSET_COMMIT) == [1, 2]
        while 2 not in brokers_of(fake, ApiKey.CONSUMER_GROUP_HEARTBEAT):
            await consumer.poll(10)
        fake.log("t", 1).put(batch(b"b"))
        assert (await consumer.getone()).value == b"b"


async def test_a_transaction_is_ended_by_the_next_coordinator() -> None:
    fake = two_brokers()
    fake.scripts[ApiKey.ADD_PARTITIONS_TO_TXN] = partitions_added
    fake.scripts[ApiKey.END_TXN] = lambda *_: EndTxnResponse()
    cluster = fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS)
    async with cluster, AsyncProducer(cluster=cluster, linger_ms=0, transactional_id="x") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"0", partition=1)
        producer.begin_transaction()
        await (await producer.send("t", b"1", partition=1))
        fake.paused.add(1)
        commit = asyncio.create_task(producer.commit_transaction())
        await asked_again(fake, ApiKey.FIND_COORDINATOR)
        fake.coordinator = 2
        await commit
    assert brokers_of(fake, ApiKey.END_TXN) == [1, 2]


async def test_a_paused_coordinator_that_no_client_was_connected_to() -> None:
    """The connection is accepted, and the handshake is not answered."""
    fake = two_brokers()
    fake.paused.add(1)
    cluster = fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS, bootstrap_servers="fake:9002")
    async with cluster, AsyncProducer(cluster=cluster, transactional_id="x") as producer:
        await cluster.refresh()
        initialized = asyncio.create_task(producer.init_transactions())
        await asked_again(fake, ApiKey.FIND_COORDINATOR)
        fake.coordinator = 2
        await initialized
    assert brokers_of(fake, ApiKey.INIT_PRODUCER_ID) == [2]


@pytest.mark.parametrize("paused", [1, 2])
async def test_the_coordinator_is_named_by_another_broker_than_the_paused_one(paused: int) -> None:
    fake = two_brokers()
    async with fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS) as cluster:
        await cluster.refresh()
        await cluster.connection(1)
        await cluster.connection(2)
        fake.paused.add(paused)
        assert await cluster.coordinators.find(CoordinatorType.GROUP, "g") == 1


async def test_a_slow_coordinator_keeps_its_requests_whatever_else_it_loses() -> None:
    """A join is answered when all members have come, however long that takes."""
    fake = two_brokers()
    fake.scripts[ApiKey.HEARTBEAT] = lambda *_: HeartbeatResponse()
    async with fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS) as cluster:
        await cluster.topic("t")

        async def ask() -> Any:
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            return await cluster.send_coordinator(CoordinatorType.GROUP, "g", request, purpose="group")

        await ask()
        fake.paused.add(1)
        waiting = asyncio.create_task(ask())
        await asked_again(fake, ApiKey.FIND_COORDINATOR)
        elect(fake, 2)
        await cluster.refresh(["t"])
        await asked_again(fake, ApiKey.FIND_COORDINATOR)
        assert not waiting.done()
        waiting.cancel()


async def test_a_coordinator_that_answers_keeps_its_joins_whatever_another_broker_says() -> None:
    """The other broker is cut off from the cluster, and still names itself."""
    fake = two_brokers()
    fake.scripts[ApiKey.HEARTBEAT] = lambda *_: HeartbeatResponse()
    async with fake.cluster(request_timeout_ms=REQUEST_TIMEOUT_MS) as cluster:

        async def ask() -> Any:
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            return await cluster.send_coordinator(CoordinatorType.GROUP, "g", request, purpose="group")

        await ask()
        await cluster.topic("t")
        cluster.note_error(T0, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # so that the other broker is preferred
        fake.scripts[ApiKey.HEARTBEAT] = lambda *_: SILENCE
        fake.scripts[ApiKey.FIND_COORDINATOR] = lambda broker, request, version: FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", node_id=broker, host="fake", port=9000 + broker)]
        )
        waiting = asyncio.create_task(ask())
        await asked_again(fake, ApiKey.FIND_COORDINATOR)
        await asked_again(fake, ApiKey.FIND_COORDINATOR)
        assert not waiting.done()
        assert brokers_of(fake, ApiKey.HEARTBEAT) == [1, 1]
        waiting.cancel()
