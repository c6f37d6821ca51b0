"""Replication quotas (KIP-73): the bucket, and what it does to brokers that copy. Sleeps take virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.server.metadata.image.cluster import ResourceType
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.rules.throttle import ReplicaThrottle
from barnabas.server.storage.reading import LogReadPlan
from tests.unit.server.replication.brokers import Cluster, in_virtual_time

RATE = 500_000


@pytest.fixture
def cold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """If so parametrized: nothing is in the page cache."""

    async def read_later(self: Partition, read: Any, executor: object) -> Any:
        await asyncio.sleep(0.001)
        return replace(read, data=read.pending.run().data, pending=None)

    if request.param:
        monkeypatch.setattr(Partition, "read_from_disk", read_later)
        monkeypatch.setattr(LogReadPlan, "try_run", lambda self: None)


from_memory_and_disk = pytest.mark.parametrize("cold", [False, True], indirect=True, ids=["memory", "disk"])


def test_throttled_replicas_are_parsed_from_the_topic_config() -> None:
    throttle = ReplicaThrottle()
    assert not throttle.covers("t", 0)
    throttle.set_replicas("t", "0:1,1:2, 2:1", 1)
    throttle.set_replicas("all", "*", 1)
    assert [throttle.covers("t", n) for n in range(4)] == [True, False, True, False]
    assert throttle.covers("all", 99)
    throttle.set_replicas("t", "nonsense", 1)
    throttle.set_replicas("all", None, 1)
    assert not throttle.covers("t", 0)
    assert not throttle.covers("all", 99)


def test_token_bucket_refills_at_the_rate() -> None:
    throttle = ReplicaThrottle()
    throttle.take(1 << 40, 0)
    assert not throttle.is_used_up(0)
    throttle.set_rate(1_000)
    assert not throttle.is_used_up(0)
    throttle.take(3_000, 0)  # one answer may be larger than what was left
    assert (throttle.is_used_up(0), throttle.wait_ms(0)) == (True, 1_000)
    assert (throttle.is_used_up(1_999), throttle.wait_ms(1_999)) == (True, 2)
    assert not throttle.is_used_up(2_001)
    assert not throttle.is_used_up(60_000)
    throttle.take(1_000, 60_000)  # it holds one second's worth, not a minute's
    assert throttle.is_used_up(60_000)
    throttle.set_rate(0)
    assert throttle.is_used_up(120_000)


@pytest.mark.usefixtures("cold")
@from_memory_and_disk
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_catching_up_replica_respects_the_rate(side: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]])
        cluster.create("free", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) == 2 for b in cluster.brokers.values()))
        leader, follower = cluster.brokers[1], cluster.brokers[2]
        follower.kill()
        cluster.fence(2)
        await cluster.until(lambda: cluster.isr("t") == [1])
        for topic in ("t", "free"):
            for _ in range(20):
                assert await leader.produce(bytes(100_000), topic=topic) is ErrorCode.NONE
        rate = {f"{side}_replication_throttled_rate": RATE}
        cluster.settings = replace(cluster.settings, replica_fetch_max_bytes=100_000, **rate)
        cluster.configure(ResourceType.BROKER, "", f"{side}.replication.throttled.rate", str(RATE))
        cluster.configure(ResourceType.TOPIC, "t", f"{side}.replication.throttled.replicas", "0:1,0:2")
        follower.start()
        began = cluster.loop.time()
        await cluster.until(lambda: cluster.isr("free") == [1, 2])
        assert cluster.loop.time() - began < 2
        await cluster.until(lambda: cluster.isr("t") == [1, 2])
        assert 2.5 <= cluster.loop.time() - began <= 6  # two megabytes, one second's worth at once
        began = cluster.loop.time()  # in sync, it is not held back any more
        for _ in range(20):
            assert await leader.produce(bytes(100_000)) is ErrorCode.NONE
        assert cluster.loop.time() - began < 1

    in_virtual_time(main, brokers=2)


@pytest.mark.usefixtures("cold")
@from_memory_and_disk
@pytest.mark.parametrize("with_session", [False, True])
def test_repeated_reads_are_throttled_once(with_session: bool) -> None:
    """A fetch that waits for more reads what there is in every pass, and sends it once."""

    async def main(cluster: Cluster) -> tuple[int, float]:
        cluster.create("t", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader = cluster.brokers[1]
        cluster.brokers[2].kill()
        cluster.fence(2)
        await cluster.until(lambda: cluster.isr("t") == [1])
        cluster.configure(ResourceType.TOPIC, "t", "leader.replication.throttled.replicas", "0:1")
        throttle = leader.partitions.context.leader_throttle
        await cluster.until(lambda: throttle.covers("t", 0))
        throttle.set_rate(RATE)
        leader.append(bytes(10_000))
        first, second = (
            FetchRequest(
                replica_id=2,
                session_epoch=0 if with_session else -1,
                max_wait_ms=5_000,
                min_bytes=min_bytes,
                max_bytes=1 << 20,
                topics=[
                    FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)]),
                ],
            )
            for min_bytes in (1, 15_000)
        )
        await leader.serve(first, 12)
        await asyncio.sleep(2)  # virtual time
        task = asyncio.ensure_future(leader.serve(second, 12))
        await asyncio.sleep(0.2)
        leader.append(bytes(10_000))
        response: Any = await task
        return len(response.responses[0].partitions[0].records), RATE - throttle._left

    sent, counted = in_virtual_time(main, brokers=2)
    assert sent > 20_000
    assert counted == sent
