"""flush.messages=1 on several brokers: nothing is committed, and nothing is read, before it is on the disks.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.server.metadata.image.cluster import ResourceType
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time


async def _fetched(cluster: Cluster, broker: Broker, offset: int = 0, **options: int) -> bytes:
    """What a consumer gets of partition 0 of `t`."""
    request = FetchRequest(
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="t", partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
            )
        ],
        **options,  # type: ignore[arg-type]
    )
    task = broker.process.spawn(cluster.loop, broker.serve(request, 12))
    answer = cast("FetchResponse", await task).responses[0].partitions[0]
    assert answer.error_code == 0
    return bytes(cast("bytes", answer.records))


def test_single_broker_returns_only_durable_records() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1]], flush_messages="1")
        broker = cluster.brokers[1]
        await cluster.until(lambda: len(broker.partitions) == 1)
        end = broker.append(b"a")
        partition, log = broker.partition(), broker.partition().log
        assert log is not None
        assert (partition.high_watermark, log.durable_offset, log.log_end_offset) == (0, 0, 1)
        assert await _fetched(cluster, broker) == b""
        parked = asyncio.ensure_future(_fetched(cluster, broker, max_wait_ms=10_000))
        assert await partition.wait_committed(end, cluster.loop.time() + 5) is ErrorCode.NONE
        assert log.durable_offset == 1
        assert len(await parked) > 0
        broker.lose_power()
        broker.start()
        await cluster.until(lambda: len(broker.partitions) == 1)
        assert broker.values() == [b"a"]

    in_virtual_time(main, brokers=1)


def test_concurrent_appends_share_a_flush() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1]], flush_messages="1")
        broker = cluster.brokers[1]
        await cluster.until(lambda: len(broker.partitions) == 1)
        outcomes = await asyncio.gather(*(broker.produce(b"%d" % n) for n in range(100)))
        assert outcomes == [ErrorCode.NONE] * 100
        log = broker.partition().log
        assert log is not None
        assert broker.disk.syncs.count(f"{log.path}/00000000000000000000.log") <= 2

    in_virtual_time(main, brokers=1)


def test_follower_acknowledges_only_durable_records() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2, 3]], flush_messages="1", min_insync_replicas="3")
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader = cluster.brokers[1]
        for broker in (2, 3):
            cluster.brokers[broker].process.executor_delay = lambda: 0.4  # slow disks
        began = cluster.loop.time()
        assert await leader.produce(b"a") is ErrorCode.NONE
        assert 0.4 <= cluster.loop.time() - began < 0.5
        assert [b.partition().log.durable_offset for b in cluster.brokers.values()] == [1, 1, 1]  # type: ignore[union-attr]

    in_virtual_time(main)


@pytest.mark.parametrize("seed", range(8))
def test_power_failure_of_all_brokers_loses_no_committed_record(seed: int) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2, 3]], flush_messages="1", min_insync_replicas="2", segment_bytes="1048576")
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        acknowledged: list[bytes] = []
        seen: list[bytes] = []
        for life in range(3):
            leader = next(b for b in cluster.brokers.values() if b.partition().is_leader)

            async def write(start: int, leader: Broker = leader, life: int = life) -> None:
                for n in range(start, 1_000, 5):
                    value = b"%d-%d" % (life, n)
                    if await leader.produce(value) is ErrorCode.NONE:
                        acknowledged.append(value)

            writers = [leader.process.spawn(cluster.loop, write(n)) for n in range(5)]
            await asyncio.sleep(0.05 + cluster.rng.random() * 0.3)
            for broker in cluster.brokers.values():
                seen += broker.values(committed=True)
            for broker in cluster.brokers.values():
                broker.disk.lose_power(rng=cluster.rng)
                broker.lose_power()
            del writers
            for broker in cluster.brokers.values():
                broker.start()
            await cluster.until(
                lambda: any(len(b.partitions) and b.partition().is_leader for b in cluster.brokers.values())
            )
            await cluster.until(lambda: cluster.isr("t") == [1, 2, 3])
            for broker in cluster.brokers.values():
                assert set(acknowledged) | set(seen) <= set(broker.values())
        assert acknowledged

    in_virtual_time(main, seed=seed)


def test_flush_messages_can_be_enabled_at_runtime() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        leader, follower = cluster.brokers[1], cluster.brokers[2]
        assert await leader.produce(b"a") is ErrorCode.NONE
        cluster.configure(ResourceType.TOPIC, "t", "flush.messages", "1")
        assert await leader.produce(b"b") is ErrorCode.NONE
        await cluster.until(lambda: follower.partition().log.durable_offset == 2)  # type: ignore[union-attr]
        assert leader.partition().log.durable_offset == 2  # type: ignore[union-attr]

    in_virtual_time(main, brokers=2)


def test_checkpointed_high_watermark_is_bounded_by_an_unsynced_truncation() -> None:
    """After a power failure old records may be back above the cut: they must not count as committed."""

    async def main(cluster: Cluster) -> None:
        cluster.create("t", [[1, 2, 3]])
        await cluster.until(lambda: all(len(b.partitions) for b in cluster.brokers.values()))
        assert await cluster.brokers[1].produce(b"a", b"b", b"c") is ErrorCode.NONE
        follower = cluster.brokers[2]
        partition, home = follower.partition(), follower.partitions.log_dir_of(follower.partition())
        await cluster.until(lambda: partition.high_watermark == 3)
        assert partition.log is not None
        assert home is not None
        partition.log._flusher.note_truncation(1)
        remembered = []
        for _ in range(2):
            follower.process.run(follower.partitions.checkpoint_high_watermarks)
            remembered.append(home.high_watermarks[partition.name])
            follower.process.run(follower.flusher.request_all, partition.log)
            await cluster.until(lambda: partition.log is not None and partition.log.unsynced_truncation is None)
        assert (remembered, partition.high_watermark) == ([1, 3], 3)

    in_virtual_time(main)
