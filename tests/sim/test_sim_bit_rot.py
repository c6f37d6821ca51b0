"""A bit that flips while the node is down: the node refuses, takes one partition offline, or serves what it served.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.errors import KafkaError
from barnabas.server.metadata.errors import MetadataError
from barnabas.testing import sim
from barnabas.testing.sim.faults import NodeFaultMenu
from barnabas.testing.sim.torture import torture


def first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def fill(world: sim.World) -> sim.SimNode:
    broker = await world.start_broker()
    async with world.producer(linger_ms=0) as producer:
        for i in range(20):
            await producer.send_and_wait("t", b"value-%d" % i, partition=0)
    return broker


async def refused(broker: sim.SimNode) -> str:
    with pytest.raises((MetadataError, KafkaError, BaseExceptionGroup)) as raised:
        await broker.start()
    error = first_error(raised.value)
    assert isinstance(error, MetadataError), error
    return str(error)


@pytest.mark.parametrize("clean", [False, True])
def test_flipped_bit_in_the_metadata_log_prevents_the_start(*, clean: bool) -> None:
    async def scenario(world: sim.World) -> None:
        broker = await fill(world)
        await (broker.stop() if clean else asyncio.sleep(3))
        broker.kill()
        path = next(p for p in broker.disk.paths() if "__cluster_metadata-0/" in p and p.endswith(".log"))
        for position in range(70, len(broker.disk.data(path)), 331):
            broker.disk.flip_bit(path, position, 3)
            assert path in await refused(broker)
            broker.disk.flip_bit(path, position, 3)
        await broker.start()
        assert not [p for p in broker.disk.paths() if "-stray" in p]

    sim.run(scenario)


def test_lost_metadata_prevents_the_start_unless_accepted() -> None:
    async def scenario(world: sim.World) -> None:
        broker = await fill(world)
        await broker.stop()
        broker.disk.rmtree("/data/__cluster_metadata-0")
        assert "The metadata has no topics, but the data directories have 1 partitions (t-0)" in await refused(broker)
        assert not [p for p in broker.disk.paths() if "-stray" in p]
        broker.config["barnabas.accept.empty.metadata"] = "true"
        await broker.start()
        assert [p for p in broker.disk.paths() if "-stray" in p and p.endswith(".log")]

    sim.run(scenario)


def test_flipped_bit_in_committed_offsets_takes_only_that_partition_offline() -> None:
    async def scenario(world: sim.World) -> None:
        broker = await fill(world)
        async with world.consumer(group_id="g") as consumer:
            consumer.subscribe(["t"])
            await consumer.poll(timeout_ms=5000)
            await consumer.commit()
        await broker.stop()
        path = max(
            (p for p in broker.disk.paths() if "__consumer_offsets-" in p and p.endswith(".log")),
            key=lambda p: len(broker.disk.data(p)),
        )
        broker.disk.flip_bit(path, len(broker.disk.data(path)) - 10, 4)
        await broker.start()
        assert broker.node is not None
        assert broker.node.broker is not None
        offline = [str(p.name) for p in broker.node.broker.partitions if p.log is None]
        assert offline == [path.split("/")[2]]
        await broker.stop()
        broker.disk.flip_bit(path, len(broker.disk.data(path)) - 10, 4)
        await broker.start()
        assert broker.node is not None
        assert broker.node.broker is not None
        assert all(p.log is not None for p in broker.node.broker.partitions)

    sim.run(scenario)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_bits_that_flip_under_load_are_noticed(seed: int) -> None:
    assert torture(seed, menu=NodeFaultMenu.ROT).acknowledged > 0, "no record was acknowledged: the run shows nothing"
