"""The parts of the simulated world: loop, network, disk, guard, processes. Sleeps take virtual time."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from pathlib import Path

import pytest

from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.core.errors import KafkaError
from barnabas.server.storage.fs import Access
from barnabas.testing import sim
from barnabas.testing.sim.disk import MemoryDisk


def test_time_jumps_to_the_next_timer() -> None:
    async def scenario(world: sim.World) -> float:
        await asyncio.gather(asyncio.sleep(3_600), asyncio.sleep(10 * 86_400))
        return world.elapsed_s

    began = time.perf_counter()
    assert sim.run(scenario) == 10 * 86_400
    assert time.perf_counter() - began < 5


def test_endless_wait_raises_liveness_error() -> None:
    async def scenario(world: sim.World) -> None:
        async with world.admin(bootstrap_servers="b1:9092"):
            await asyncio.get_running_loop().create_future()

    with pytest.raises(sim.LivenessError):
        sim.run(scenario, within_s=100)


def test_endless_loop_raises_liveness_error() -> None:
    async def scenario(world: sim.World) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(sim.LivenessError, match="endless"):
        sim.run(scenario)


def test_endless_callback_raises_liveness_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.testing.sim.guard._CALLBACK_S", 0.2)

    async def scenario(world: sim.World) -> None:
        while True:
            pass

    with pytest.raises(sim.LivenessError, match="callback"):
        sim.run(scenario)


def test_unhandled_exception_raises_crash_error() -> None:
    async def scenario(world: sim.World) -> None:
        def broken() -> None:
            raise ZeroDivisionError

        asyncio.get_running_loop().call_soon(broken)
        await asyncio.sleep(1)

    with pytest.raises(sim.CrashError, match="ZeroDivisionError"):
        sim.run(scenario)


def test_failure_notes_have_the_seed_and_the_trace() -> None:
    async def scenario(world: sim.World) -> None:
        await world.start_broker()
        raise sim.CorrectnessError("wrong")

    with pytest.raises(sim.CorrectnessError) as caught:
        sim.run(scenario, seed=77)
    notes = "\n".join(caught.value.__notes__)
    assert "seed 77" in notes
    assert "b1" in notes
    assert "is ready" in notes


class TestTheRealWorldIsOutOfReach:
    def test_opening_a_real_file_raises_real_world_error(self, tmp_path: Path) -> None:
        async def scenario(world: sim.World) -> None:
            (tmp_path / "file").write_text("x")

        with pytest.raises(sim.RealWorldError):
            sim.run(scenario)
        (tmp_path / "file").write_text("afterwards it is allowed again")

    def test_opening_a_real_socket_raises_real_world_error(self) -> None:
        async def scenario(world: sim.World) -> None:
            socket.socket()

        with pytest.raises(sim.RealWorldError):
            sim.run(scenario)

    def test_starting_a_real_thread_raises_real_world_error(self) -> None:
        async def scenario(world: sim.World) -> None:
            threading.Thread(target=print).start()

        with pytest.raises(sim.RealWorldError):
            sim.run(scenario)


class TestTheNetwork:
    def test_cut_link_delays_bytes_until_it_is_healed(self) -> None:
        async def scenario(world: sim.World) -> None:
            await world.start_broker()
            async with world.producer(request_timeout_ms=60_000) as producer:
                await producer.send_and_wait("t", b"1")
                world.network.cut("outside", "b1", both=False)
                sending = asyncio.ensure_future(producer.send_and_wait("t", b"2"))
                await asyncio.sleep(20)
                assert not sending.done()
                world.network.heal()
                assert (await sending).offset == 1

        sim.run(scenario)

    def test_request_whose_response_is_cut_off_takes_effect_once(self) -> None:
        """In a one-way partition a request arrives, but its response does not. The client retries without
        duplicates."""

        async def scenario(world: sim.World) -> None:
            await world.start_broker()
            async with world.producer(request_timeout_ms=5_000) as producer:
                await producer.send_and_wait("t", b"1")
                world.network.cut("b1", "outside", both=False)
                sending = asyncio.ensure_future(producer.send_and_wait("t", b"2"))
                await asyncio.sleep(12)
                world.network.heal()
                metadata = await sending
                assert metadata.offset == 1
            async with world.consumer() as consumer:
                tp = metadata.topic_partition
                assert await consumer.end_offsets([tp]) == {tp: 2}

        sim.run(scenario)

    def test_paused_broker_responds_after_resume(self) -> None:
        async def scenario(world: sim.World) -> float:
            broker = await world.start_broker()
            async with world.producer() as producer:
                await producer.send_and_wait("t", b"1")
                broker.pause()
                asyncio.get_running_loop().call_later(7, broker.resume)
                began = world.loop.time()
                await producer.send_and_wait("t", b"2")
                return world.loop.time() - began

        assert 7.0 <= sim.run(scenario) < 7.5

    def test_connections_of_a_host_without_power_are_reset_after_its_restart(self) -> None:
        async def scenario(world: sim.World) -> None:
            broker = await world.start_broker({"log.flush.interval.messages": "1"})
            async with world.producer(request_timeout_ms=60_000) as producer:
                await producer.send_and_wait("t", b"1")
                broker.lose_power()
                sending = asyncio.ensure_future(producer.send_and_wait("t", b"2"))
                await asyncio.sleep(10)
                assert not sending.done()
                await broker.start()
                began = world.loop.time()
                await sending
                assert world.loop.time() - began < 5

        sim.run(scenario)

    @pytest.mark.parametrize("returns", [True, False])
    def test_a_group_does_not_wait_for_a_coordinator_without_power(self, *, returns: bool) -> None:
        """A join waits when its coordinator's host loses power. No packet ends the connection, and the time-out of the
        request is max.poll.interval.ms, five minutes."""

        async def scenario(world: sim.World) -> float:
            settings = {
                "group.initial.rebalance.delay.ms": "6000",
                "offsets.topic.num.partitions": "1",
                "offsets.topic.replication.factor": "3",
            }
            cluster = await world.start_cluster(3, 1, config=settings)
            async with world.admin() as admin:
                await admin.create_topic("t", 1, 3)
            async with world.consumer(group_id="g", group_protocol="classic") as consumer:
                consumer.subscribe(["t"])
                await consumer.poll(3_000)
                coordinator = await consumer.cluster.coordinators.find(CoordinatorType.GROUP, "g")
                node = cluster.hosts[f"b{coordinator}"]
                node.lose_power()
                began = world.loop.time()
                if returns:
                    await cluster.up(node)
                while not consumer.assignment():
                    await consumer.poll(1_000)
                return world.loop.time() - began

        assert sim.run(scenario) < 60


class TestTheDisk:
    def test_power_cut_may_lose_unsynced_records(self) -> None:
        async def ends(world: sim.World) -> int:
            broker = await world.start_broker()
            async with world.producer() as producer:
                for i in range(50):
                    metadata = await producer.send_and_wait("t", b"%d" % i)
            broker.lose_power()
            await broker.start()
            async with world.consumer() as consumer:
                tp = metadata.topic_partition
                try:
                    return (await consumer.end_offsets([tp]))[tp]
                except KafkaError:
                    return 0

        found = {sim.run(ends, seed=seed) for seed in range(8)}
        assert len(found) > 1
        assert min(found) < 50

    def test_record_with_a_flipped_bit_is_never_returned(self) -> None:
        async def scenario(world: sim.World) -> list[bytes]:
            broker = await world.start_broker()
            async with world.producer(linger_ms=0) as producer:
                for i in range(10):
                    await producer.send_and_wait("t", b"value-%d" % i, partition=0)
            log = next(path for path in broker.disk.paths() if "/t-0/" in path and path.endswith(".log"))
            broker.disk.flip_bit(log, len(broker.disk.data(log)) - 3)
            broker.kill()
            await broker.start()
            seen: list[bytes] = []
            async with world.consumer(auto_offset_reset="earliest") as consumer:
                consumer.assign(await consumer.partitions_for("t"))
                for _ in range(5):
                    seen += [record.value for record in await consumer.poll(1_000)]
            return seen

        assert sim.run(scenario) == [b"value-%d" % i for i in range(9)]

    def test_killed_process_cannot_write_to_its_disk(self) -> None:
        disk = MemoryDisk()
        disk.mkdir("/d")
        mount = disk.mount()
        disk.crash()
        with pytest.raises(KafkaError):
            mount.open("/d/f", Access.WRITE)

    def test_power_cut_may_keep_any_combination_of_sectors(self) -> None:
        import random

        kept = set()
        for seed in range(40):
            disk = MemoryDisk()
            disk.mkdir("/d")
            file = disk.open("/d/f", Access.WRITE)
            file.write_at(0, [b"a" * 4096])
            file.sync()
            disk.sync_dir("/d")
            disk.sync_dir("/")
            file.write_at(4096, [b"b" * 1024])
            disk.lose_power(rng=random.Random(seed))
            data = bytes(disk.data("/d/f"))
            assert data.startswith(b"a" * 4096)
            kept.add((len(data), data.count(b"b")))
        assert (4096, 0) in kept
        assert (5120, 1024) in kept
        assert (5120, 512) in kept


def test_log_of_another_thread_is_not_in_the_trace() -> None:
    """For example that of a real broker which another test has left running in this process."""
    told, logged = threading.Event(), threading.Event()

    def stranger() -> None:
        assert told.wait(10)
        logging.getLogger("barnabas.loop").warning("a stranger")
        logged.set()

    thread = threading.Thread(target=stranger)
    thread.start()

    async def scenario(world: sim.World) -> str:
        told.set()
        assert logged.wait(10)
        logging.getLogger("barnabas.loop").warning("the world itself")
        return world.trace.text()

    text = sim.run(scenario)
    thread.join()
    assert "the world itself" in text
    assert "a stranger" not in text
