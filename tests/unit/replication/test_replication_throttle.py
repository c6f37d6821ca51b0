"""Replication quotas (KIP-73): the bucket, and what it does to brokers that copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.metadata.image.cluster import ResourceType
from barnabas.replication.rules.throttle import ReplicaThrottle
from tests.unit.replication.brokers import Cluster, in_virtual_time


def test_which_replicas() -> None:
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


def test_the_bucket() -> None:
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


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_catches_up_is_held_to_the_rate(side: str) -> None:
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
        rate = {f"{side}_rate": 500_000}
        fetch = replace(cluster.settings.fetch, max_bytes=100_000)
        cluster.settings = replace(cluster.settings, fetch=fetch, **rate)
        cluster.configure(ResourceType.BROKER, "", f"{side}.replication.throttled.rate", "500000")
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
