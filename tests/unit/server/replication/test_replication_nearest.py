"""KIP-392: consumers are sent to an in-sync replica in their rack; followers serve what they know to be committed.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from typing import cast

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.protocol.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time


async def consume(
    cluster: Cluster, broker: Broker, offset: int = 0, *, rack: str = "", version: int = 12, **options: int
) -> PartitionData:
    request = FetchRequest(
        rack_id=rack,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="t", partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
            )
        ],
        **options,  # type: ignore[arg-type]
    )
    task = broker.process.spawn(cluster.loop, broker.serve(request, version))
    return cast("FetchResponse", await task).responses[0].partitions[0]


async def racks(cluster: Cluster) -> tuple[Broker, Broker]:
    """A leader in rack a, a follower in rack b, both with one record."""
    leader, follower = cluster.add(1, "a"), cluster.add(2, "b")
    cluster.create("t", [[1, 2]])
    await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
    assert await leader.produce(b"x") is ErrorCode.NONE
    await cluster.until(lambda: follower.partition().high_watermark == 1)
    return leader, follower


def test_leader_returns_the_replica_in_the_clients_rack() -> None:
    async def main(cluster: Cluster) -> None:
        leader, follower = await racks(cluster)
        sent_away = await consume(cluster, leader, rack="b")
        assert (sent_away.error_code, sent_away.preferred_read_replica, sent_away.high_watermark) == (0, 2, 1)
        assert len(cast("bytes", sent_away.records)) == 0
        for rack, version in (("a", 12), ("", 12), ("elsewhere", 12), ("b", 10)):
            served = await consume(cluster, leader, rack=rack, version=version)
            assert served.preferred_read_replica == -1
            assert len(cast("bytes", served.records)) > 0
        there = await consume(cluster, follower, rack="b")
        assert (there.error_code, there.preferred_read_replica, there.high_watermark) == (0, -1, 1)
        assert len(cast("bytes", there.records)) > 0
        assert (await consume(cluster, follower, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_virtual_time(main, brokers=0)


def test_lagging_replica_is_not_preferred() -> None:
    async def main(cluster: Cluster) -> None:
        leader, _ = await racks(cluster)
        cluster.cut.add(frozenset({1, 2}))
        assert await leader.produce(b"y") is ErrorCode.NONE
        assert cluster.isr("t") == [1]
        assert (await consume(cluster, leader, 1, rack="b")).preferred_read_replica == -1

    in_virtual_time(main, brokers=0)


def test_consumer_of_a_follower_waits_for_its_high_watermark() -> None:
    async def main(cluster: Cluster) -> None:
        leader, follower = await racks(cluster)
        parked = asyncio.ensure_future(consume(cluster, follower, 1, max_wait_ms=10_000))
        await asyncio.sleep(0.5)
        began = cluster.loop.time()
        assert await leader.produce(b"y") is ErrorCode.NONE
        answer = await parked
        assert (answer.high_watermark, len(cast("bytes", answer.records)) > 0) == (2, True)
        assert cluster.loop.time() - began < 0.1  # not the rest of replica.fetch.wait.max.ms
        beyond = await consume(cluster, follower, 7)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    in_virtual_time(main, brokers=0)


def test_new_leader_rejects_latest_offset_until_it_is_known() -> None:
    async def latest(cluster: Cluster, broker: Broker, replica_id: int = -1, version: int = 6) -> tuple[int, int]:
        request = ListOffsetsRequest(
            replica_id=replica_id,
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
        )
        task = broker.process.spawn(cluster.loop, broker.serve(request, version))
        found = cast("ListOffsetsResponse", await task).topics[0].partitions[0]
        return found.error_code, found.offset

    async def main(cluster: Cluster) -> None:
        leader, follower = await racks(cluster)
        assert await latest(cluster, leader) == (0, 1)
        assert await latest(cluster, follower) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await latest(cluster, follower, -2) == (0, 1)
        cluster.cut |= {frozenset({0, 1}), frozenset({0, 2})}
        leader.append(b"y")
        await cluster.until(lambda: follower.values() == [b"x", b"y"])
        cluster.cut |= {frozenset({1, 2})}  # the follower has it, and does not know that it is committed
        state = cluster.image.topics.partition("t", 0)
        assert state is not None
        moved = replace(state, leader=2, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)
        follower.process.run(lambda: follower.partition().apply_image(moved))
        assert await latest(cluster, follower) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await latest(cluster, follower, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert await latest(cluster, follower, 3) == (0, 2)

    in_virtual_time(main, brokers=0)
