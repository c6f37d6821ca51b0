"""Retention, expiry and time-outs of the production broker over days. Sleeps take virtual time."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.testing import sim

DAY = 86_400.0
T0 = TopicPartition("t", 0)


def test_retention_deletes_segments_after_retention_ms() -> None:
    async def scenario(world: sim.World) -> None:
        await world.start_broker()
        async with world.admin() as admin, world.producer() as producer, world.consumer() as reader:
            await admin.create_topic("t", 1, configs={"retention.ms": "3600000", "segment.ms": "600000"})
            await producer.send_and_wait("t", b"old", partition=0)
            await asyncio.sleep(1_800)
            await producer.send_and_wait("t", b"young", partition=0)
            await asyncio.sleep(1_790)
            assert await reader.beginning_offsets([T0]) == {T0: 0}
            await asyncio.sleep(320)  # log.retention.check.interval.ms
            assert await reader.beginning_offsets([T0]) == {T0: 1}
            await asyncio.sleep(3_600)
            assert await reader.beginning_offsets([T0]) == {T0: 2}

    sim.run(scenario, seed=1)


def test_silent_member_loses_partitions_after_session_timeout() -> None:
    async def member(world: sim.World, owned: dict[str, frozenset[TopicPartition]], name: str) -> None:
        async with world.consumer(group_id="g", session_timeout_ms=10_000, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            while True:
                await consumer.poll(200)
                owned[name] = consumer.assignment()

    async def scenario(world: sim.World) -> None:
        await world.start_broker()
        async with world.admin() as admin:
            await admin.create_topic("t", 2)
        owned: dict[str, frozenset[TopicPartition]] = {}
        first, _ = world.start_client("one", member(world, owned, "one"))
        world.start_client("two", member(world, owned, "two"))
        await world.until(lambda: {len(p) for p in owned.values()} == {1} and len(owned) == 2, 30, "each has one")
        world.pause(first)
        silent = world.loop.time()
        await world.until(lambda: len(owned["two"]) == 2, 30, "the other one has both")
        assert 9.0 <= world.loop.time() - silent <= 16.0

    sim.run(scenario, seed=2)


def test_committed_offsets_of_empty_group_expire() -> None:
    async def scenario(world: sim.World) -> None:
        await world.start_broker({"offsets.retention.minutes": "60", "offsets.retention.check.interval.ms": "60000"})
        async with world.admin() as admin, world.producer() as producer:
            await admin.create_topic("t", 1)
            await producer.send_and_wait("t", b"x", partition=0)
            async with world.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["t"])
                while not await consumer.poll(1_000):
                    pass
                await consumer.commit()
        async with world.consumer(group_id="g") as asking:
            await asyncio.sleep(3_500)
            found = (await asking.committed([T0]))[T0]
            assert found is not None
            assert found.offset == 1
            await asyncio.sleep(240)
            assert (await asking.committed([T0]))[T0] is None

    sim.run(scenario, seed=3)


def test_transaction_of_killed_producer_is_aborted_after_its_timeout() -> None:
    async def abandon(world: sim.World) -> None:
        async with world.producer(transactional_id="x", transaction_timeout_ms=20_000) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_and_wait("t", b"never", partition=0)
            await asyncio.sleep(DAY)

    async def scenario(world: sim.World) -> None:
        await world.start_broker()
        async with world.admin() as admin:
            await admin.create_topic("t", 1)
        process, _ = world.start_client("p", abandon(world))
        await asyncio.sleep(5)
        world.kill(process)
        async with world.consumer(isolation_level="read_committed") as committed:
            assert await committed.end_offsets([T0]) == {T0: 0}
            await asyncio.sleep(10)
            assert await committed.end_offsets([T0]) == {T0: 0}
            await asyncio.sleep(30)
            assert await committed.end_offsets([T0]) == {T0: 2}
            committed.assign([T0])
            committed.seek_to_beginning(T0)
            assert await committed.poll(5_000) == []

    sim.run(scenario, seed=4)


def test_idle_broker_runs_for_a_simulated_day() -> None:
    """An idle broker runs for a simulated day without errors and with little CPU time."""

    async def scenario(world: sim.World) -> float:
        await world.start_broker({"log.flush.interval.ms": "3600000"})
        await asyncio.sleep(DAY)
        return world.elapsed_s

    assert sim.run(scenario, seed=5) == pytest.approx(DAY, abs=1)
