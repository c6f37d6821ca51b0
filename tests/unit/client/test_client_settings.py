"""Settings that only show in what the client does: socket sizes, how old metadata gets, brokers that take nothing."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest

from barnabas.client.producer.links import BrokerLink
from barnabas.client.producer.producer import AsyncProducer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.transport.outgoing_connection import KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from tests.unit.client.fake_cluster import FakeCluster, _Transport


def sizes(plain: socket.socket) -> tuple[int, int]:
    send, receive = (plain.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF))
    return send, receive


async def test_socket_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as plain:
        usual = sizes(plain)
        monkeypatch.setattr(_Transport, "get_extra_info", lambda *_: plain)
        async with FakeCluster().cluster() as cluster:
            await cluster.refresh()
        assert sizes(plain) == usual
        async with FakeCluster().cluster(send_buffer_bytes=30_000, receive_buffer_bytes=40_000) as cluster:
            await cluster.refresh()
        assert sizes(plain) in ((30_000, 40_000), (60_000, 80_000))  # Linux doubles what it is told


async def test_silent_hosts_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a join at a coordinator that has lost power would wait for max.poll.interval.ms."""
    with socket.socket() as plain:
        monkeypatch.setattr(_Transport, "get_extra_info", lambda *_: plain)
        async with FakeCluster().cluster() as cluster:
            await cluster.refresh()
        assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == KEEPALIVE_INTERVAL_S
        assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == KEEPALIVE_PROBES


def asked_for(fake: FakeCluster, topic: str) -> int:
    return sum(
        isinstance(request, MetadataRequest) and any(t.name == topic for t in request.topics or ())
        for _, _, request in fake.requests
    )


async def test_a_producer_asks_anew_for_topics_that_it_writes_to() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    again = asyncio.Event()

    def note(*_: object) -> None:
        if asked_for(fake, "t") >= 2:
            again.set()

    fake.scripts[ApiKey.METADATA] = note
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0, metadata_max_age_ms=0) as producer:
        await producer.send_and_wait("t", b"v")
        await asyncio.wait_for(again.wait(), 10)
    assert asked_for(fake, "t") >= 2


async def test_a_topic_that_was_not_written_to_is_asked_for_by_the_next_send() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")
        await producer.send_and_wait("t", b"1")
        assert asked_for(fake, "t") == 1
        producer._topics.states["t"].used_at -= 301
        assert (await producer.send_and_wait("t", b"2")).offset == 2  # in its sequence: the queue is still known
        await producer.send_and_wait("t", b"3")
    assert asked_for(fake, "t") == 2
    assert fake.log("t").values() == [b"0", b"1", b"2", b"3"]


async def test_a_broker_that_takes_nothing_gets_no_keyless_records() -> None:
    fake = FakeCluster(2)
    fake.add_topic("t", 2)
    config = {"linger.ms": 0, "partitioner.availability.timeout.ms": 500, "batch.size": 100}
    async with AsyncProducer(config, cluster=fake.cluster()) as producer:
        await asyncio.gather(*[producer.send_and_wait("t", b"v", partition=index) for index in (0, 1)])
        sender, now = producer._sender, producer.cluster.now()
        sender.links._links[2] = BrokerLink(connecting=True, drained_at=now - 1)
        assert sender.links.unavailable() == set()
        queue = producer._accumulator.queues[TopicPartition("t", 1)]
        sender._send_to(2, [queue], now)  # there is something for it, and it cannot be sent
        assert sender.links.unavailable() == {2}
        futures = [await producer.send("t", b"x" * 90) for _ in range(20)]
        gone_to = Counter(future.batch.partition.partition for future in futures)
        assert gone_to[1] <= 2  # what it stuck to before
        del sender.links._links[2]
        assert sender.links.unavailable() == set()
        arrived = [(await future).partition for future in futures]
        assert Counter(arrived) == gone_to
