"""Cluster: connections, versions, deadlines and metadata."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.client.admin.reassignments import list_reassignments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.errors import (
    BootstrapError,
    BrokerUnreachableError,
    ClientClosedError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from barnabas.client.options import ClusterConfig
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.transport.outgoing_connection import OutgoingConnection
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from tests.unit.client.fake_cluster import DROP, SILENCE, FakeCluster


async def test_a_broker_that_knows_only_old_api_versions() -> None:
    fake = FakeCluster()
    fake.api_versions_max = 2
    fake.add_topic("t")
    async with fake.cluster() as cluster:
        assert (await cluster.topic("t")).partition_count == 1
    asked = [version for _, key, version in fake.requests if key is ApiKey.API_VERSIONS]
    assert len(asked) == 2  # ours, refused in version 0 (KIP-511); then theirs


async def test_requests_use_the_highest_common_version() -> None:
    fake = FakeCluster()
    fake.versions[ApiKey.METADATA] = (0, 9)
    fake.versions[ApiKey.PRODUCE] = (99, 100)
    versions: list[int] = []

    def note(broker_id: int, request: object, version: int) -> None:
        versions.append(version)

    fake.scripts[ApiKey.METADATA] = note
    async with fake.cluster() as cluster:
        await cluster.refresh()
        connection = await cluster.connection(1)
        with pytest.raises(UnsupportedApiError, match="serves versions 99 to 100"):
            connection.choose_version(ApiKey.PRODUCE)
        del connection.versions.ranges[ApiKey.FETCH]
        with pytest.raises(UnsupportedApiError, match="does not serve Fetch"):
            connection.choose_version(ApiKey.FETCH)
    assert versions == [9]


async def test_bootstrap_error_names_servers_and_reasons() -> None:
    fake = FakeCluster()
    fake.down.add(1)
    async with fake.cluster() as cluster:
        with pytest.raises(BootstrapError, match=r"fake:9001.*Connection refused") as caught:
            await cluster.refresh(deadline=cluster.now() + 0.02)
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


async def test_an_unreachable_advertised_address_gets_a_hint() -> None:
    fake = FakeCluster(brokers=2)
    async with fake.cluster() as cluster:
        await cluster.refresh()
        fake.down.add(2)
        with pytest.raises(BrokerUnreachableError, match=r"advertised\.listeners"):
            await cluster.connection(2)


async def test_a_timed_out_request_closes_the_connection() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with fake.cluster() as cluster:
        await cluster.refresh()
        fake.scripts[ApiKey.METADATA] = lambda *_: SILENCE
        connection = await cluster.connection(1)
        first = asyncio.ensure_future(cluster.send(1, MetadataRequest(), deadline=cluster.now() + 0.02))
        await asyncio.sleep(0)
        second = connection.send(MetadataRequest(), 9)
        with pytest.raises(RequestTimeoutError, match="MetadataRequest in time"):
            await first
        with pytest.raises(BrokerUnreachableError, match="timed out"):
            await second
        assert not connection.alive
        fake.scripts.clear()
        assert (await cluster.topic("t")).partition_count == 1  # over a new connection


async def test_a_lost_connection_fails_unanswered_requests_and_is_replaced() -> None:
    fake = FakeCluster()
    answers = [DROP]
    fake.scripts[ApiKey.METADATA] = lambda *_: answers.pop() if answers else None
    async with fake.cluster() as cluster:
        await cluster.refresh()
    assert [key for _, key, _ in fake.requests].count(ApiKey.METADATA) == 2


async def test_an_unexpected_correlation_id_closes_the_connection() -> None:
    fake = FakeCluster()
    async with fake.cluster() as cluster:
        await cluster.refresh()
        connection = await cluster.connection(1)
        fake.scripts[ApiKey.METADATA] = lambda *_: SILENCE
        future = connection.send(MetadataRequest(), 9)
        connection.data_received(b"\x00\x00\x00\x08\x7f\x7f\x7f\x7f\x00\x00\x00\x00")
        with pytest.raises(BrokerUnreachableError, match="not a Kafka response"):
            await future
        assert not connection.alive


async def test_concurrent_callers_share_one_connection() -> None:
    fake = FakeCluster()
    async with fake.cluster() as cluster:
        await cluster.refresh()
        connections = await asyncio.gather(*(cluster.connection(1) for _ in range(20)))
    assert len(set(map(id, connections))) == 1
    assert len(fake.transports) == 2  # the bootstrap server, and the broker by its id


async def test_leader_waits_for_an_election_until_the_deadline() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.log("t").leader = -1
    async with fake.cluster() as cluster:
        with pytest.raises(KafkaError, match="has no leader") as caught:
            await cluster.leader(TopicPartition("t", 0), deadline=cluster.now() + 0.03)
        assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE
        fake.log("t").leader = 1
        assert (await cluster.leader(TopicPartition("t", 0))).leader == 1
        with pytest.raises(KafkaError, match="has 1 partitions"):
            await cluster.leader(TopicPartition("t", 5))
        with pytest.raises(KafkaError, match="There is no topic 'nope'"):
            await cluster.topic("nope")


async def test_a_controller_that_is_down_is_looked_up_again() -> None:
    fake = FakeCluster(brokers=2)

    def name_the_last(broker_id: int, request: MetadataRequest, version: int) -> Any:
        response = fake._metadata(request)
        response.controller_id = max(broker.node_id for broker in response.brokers)
        return response

    def moves(broker_id: int, request: Any, version: int) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(error_message=None, topics=[])

    fake.scripts[ApiKey.METADATA] = name_the_last
    fake.scripts[ApiKey.LIST_PARTITION_REASSIGNMENTS] = moves
    async with fake.cluster() as cluster:
        await cluster.refresh()
        assert cluster.metadata.controller_id == 2
        fake.down.add(2)
        assert await list_reassignments(cluster, None, deadline=cluster.deadline(2_000)) == {}


async def test_a_closed_client_raises_client_closed_error() -> None:
    fake = FakeCluster()
    cluster = fake.cluster()
    await cluster.refresh()
    await cluster.close()
    with pytest.raises(ClientClosedError):
        await cluster.refresh()


async def test_reach_gives_up_after_the_time_a_connection_may_take() -> None:
    fake = FakeCluster()
    fake.down.add(1)
    async with fake.cluster(socket_connection_setup_timeout_ms=30, request_timeout_ms=60_000) as cluster:
        with pytest.raises(BootstrapError, match=r"none of bootstrap\.servers fake:9001 answers.*Connection refused"):
            await asyncio.wait_for(cluster.reach(), 5)
        fake.down.clear()
        await cluster.reach()
        assert list(cluster.metadata.brokers) == [1]


async def test_a_server_that_drops_packets_leaves_time_for_the_next() -> None:
    fake = FakeCluster()

    async def opener(to: Destination, *more: Any, setup_s: float, **rest: Any) -> OutgoingConnection:
        if to.host == "blackhole":
            await asyncio.sleep(setup_s)  # as an attempt whose packets are dropped
            raise BrokerUnreachableError("no answer")
        return await fake.opener(to, *more, setup_s=setup_s, **rest)

    options = ClusterConfig.of(bootstrap_servers="blackhole:1,fake:9001", socket_connection_setup_timeout_ms=1_000)
    async with Cluster(options, opener=opener) as cluster:
        await cluster.reach()
        assert list(cluster.metadata.brokers) == [1]
