"""The tasks of a tiered partition copy all records and delete old ones, and no failure of the store loses a record.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.log_files import LOG
from barnabas.server.storage.log import Log
from barnabas.server.tiering.copying import CopyLag
from barnabas.server.tiering.leaders import TieredLeaders, TieringConfig
from barnabas.server.tiering.quotas import UNLIMITED
from barnabas.server.tiering.values import PartitionDeleteState
from tests.unit.server.tiering.house import House, LoopClock, run
from tests.unit.server.tiering.segments import FINISHED, PARTITION, segment

CONFIG = TieringConfig(
    remote_log_manager_copier_thread_pool_size=2,
    remote_log_manager_copy_max_bytes_per_second=UNLIMITED,
    remote_log_manager_copy_quota_window_num=11,
    remote_log_manager_copy_quota_window_size_seconds=1,
    remote_log_manager_expiration_thread_pool_size=2,
    remote_log_manager_task_interval_ms=30_000,
    remote_log_manager_task_retry_backoff_max_ms=30_000,
    remote_log_manager_task_retry_backoff_ms=500,
    remote_log_manager_task_retry_jitter=0.2,
)


class LeaderHouse(House):
    """A house whose broker leads the partition. All records are committed."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        super().__init__(seed, tiered=True, **config)
        self.leaders = TieredLeaders(self.copier, self.topic, LoopClock(), self.rng, CONFIG, broker_id=1)
        self.committed: int | None = None

    @property
    def log(self) -> Log:
        return self.harness.log

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset if self.committed is None else self.committed

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(self.leaders.run())
        self.leaders.lead(PARTITION, self)
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def retain(self) -> int:
        self.log.flush()
        return self.log.enforce_retention(10_000_000, self.high_watermark)


def test_closed_segments_are_copied_and_then_deleted_locally() -> None:
    house = LeaderHouse(local_retention_ms=1, retention_ms=-1)
    house.fill(12)

    async def main() -> None:
        assert house.retain() == 0
        async with house.leading():
            await asyncio.sleep(5)
        assert house.retain() > 2

    run(main)
    active = house.log.segments.active.base_offset
    assert (house.log.log_start_offset, house.log.local_log_start_offset) == (0, active)
    assert house.log.highest_copied_offset == active - 1
    assert house.leaders.leaders()[0].lag == CopyLag(0, 0)


def test_new_segments_are_copied_at_the_next_interval() -> None:
    house = LeaderHouse(retention_ms=-1)

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(10)
            house.fill(12)
            await asyncio.sleep(10)
            assert house.stored(LOG) == {}
            assert house.leaders.leaders()[0].lag.segments == 0  # as of the last look
            await asyncio.sleep(20)
            assert len(house.stored(LOG)) == len(house.log.segments) - 1

    run(main)


def test_records_that_are_not_committed_are_not_copied() -> None:
    house = LeaderHouse(retention_ms=-1)
    house.fill(12)
    second = house.log.segments.bases[1]
    house.committed = house.log.segments.bases[2] - 1

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(5)

    run(main)
    assert list(house.stored(LOG)) == [0]
    assert house.log.highest_copied_offset == second - 1
    assert house.leaders.leaders()[0].lag.segments == len(house.log.segments) - 2


def test_old_remote_segments_are_deleted_and_the_log_start_is_raised_first() -> None:
    house = LeaderHouse(local_retention_ms=1, retention_ms=2_000_000)
    house.fill(12)  # timestamps of about 1000 ms; the clock of the loop begins at 1,000,000 ms

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(60)
            assert len(house.stored(LOG)) > 2 and house.log.log_start_offset == 0
            await asyncio.sleep(1_000)

    run(main)
    active = house.log.segments.active.base_offset
    assert house.stored(LOG) == {} and house.remote.segments() == []
    assert house.log.log_start_offset == active
    assert house.log.highest_copied_offset == active - 1 or house.log.highest_copied_offset == -1


def test_a_log_start_that_was_lost_with_a_leader_is_found_again() -> None:
    house = LeaderHouse(local_retention_ms=1, retention_ms=-1)
    house.fill(12)

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(5)
            house.retain()
            first, second, *_ = house.remote.readable_segments()
            await house.copier.delete(first)
            assert house.log.log_start_offset == 0
            await asyncio.sleep(30)
            assert house.log.log_start_offset == second.start_offset

    run(main)


def test_leftovers_of_a_dead_leader_are_deleted() -> None:
    house = LeaderHouse(retention_ms=-1)
    house.fill(12)

    async def main() -> None:
        await house.topic.write(segment(99, 0, 9))
        async with house.leading():
            await asyncio.sleep(40)

    run(main)
    assert {s.state for s in house.remote.segments()} == {FINISHED}
    assert len(house.remote.segments()) == len(house.log.segments) - 1


def test_a_partition_that_is_not_led_any_more_is_left_alone() -> None:
    house = LeaderHouse(retention_ms=-1)

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(5)
            house.leaders.resign(PARTITION)
            house.fill(12)
            await asyncio.sleep(100)
            assert house.leaders.leaders() == []

    run(main)
    assert house.objects.calls == [] and house.topic.records == []


def test_a_store_that_is_cut_off_stops_local_deletion_and_then_everything_is_caught_up() -> None:
    house = LeaderHouse(local_retention_ms=1, retention_ms=-1)
    house.objects.faults.cut_off = True

    async def main() -> None:
        async with house.leading():
            for _ in range(5):
                house.fill(6)
                await asyncio.sleep(120)
                assert house.retain() == 0 and house.log.local_log_start_offset == 0
            house.objects.faults.cut_off = False
            await asyncio.sleep(120)

    run(main)
    assert len(house.stored(LOG)) == len(house.log.segments) - 1
    assert {s.state for s in house.remote.segments()} == {FINISHED}
    assert house.retain() == len(house.stored(LOG))


@pytest.mark.parametrize("seed", range(10))
def test_no_record_is_ever_without_a_copy(seed: int) -> None:
    """The store fails, hangs, is slow and loses objects, the event topic fails, and the leader changes."""
    house = LeaderHouse(seed, local_retention_ms=1, retention_ms=-1)
    faults = house.objects.faults
    faults.fails, faults.loses, faults.hangs, faults.delay_ms = 0.1, 0.05, 0.02, 100
    written = bytearray()

    async def main() -> None:
        async with house.leading():
            for _ in range(20):
                offset = house.log.log_end_offset
                house.fill(4)
                while offset < house.log.log_end_offset:  # a read ends with its segment
                    data = bytes(house.log.read(offset, 1 << 20).data)
                    written.extend(data)
                    offset = [header for _, header in iter_batches(data)][-1].next_offset
                house.topic.fails = house.rng.randrange(3)
                await asyncio.sleep(house.rng.random() * 60)
                if house.rng.random() < 0.2:
                    house.leaders.resign(PARTITION)
                    house.leaders.lead(PARTITION, house)
                house.retain()
            faults.fails = faults.loses = faults.hangs = 0
            house.topic.fails = 0
            await asyncio.sleep(300)

    run(main, seed)
    house.retain()
    copies = house.stored(LOG)
    readable = {s.start_offset for s in house.remote.readable_segments()}
    assert {s.state for s in house.remote.segments()} == {FINISHED} and set(copies) == readable
    active = house.log.segments.active
    assert b"".join(copies[start] for start in sorted(copies)) + bytes(
        house.log.read(active.base_offset, 1 << 20).data
    ) == bytes(written)
    assert len(house.objects.objects) == 5 * len(copies)  # without leftovers


def test_a_deleted_partition_loses_all_its_objects_whatever_fails_in_between() -> None:
    house = LeaderHouse(retention_ms=-1)
    house.fill(12)

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(5)
            house.leaders.resign(PARTITION)
        assert house.objects.objects
        for fails in range(3):
            house.topic.fails = 1
            house.objects.faults.cut_off = fails == 2
            with pytest.raises(Exception, match=r"no leader|failed at"):
                await house.leaders.delete_partition(PARTITION)
            house.topic.fails = 0
        house.objects.faults.cut_off = False
        await house.leaders.delete_partition(PARTITION)
        await house.leaders.delete_partition(PARTITION)

    run(main)
    assert house.objects.objects == {} and house.remote.segments() == []
    assert house.remote.delete_state is PartitionDeleteState.DELETE_PARTITION_FINISHED


def test_with_copies_disabled_nothing_is_copied() -> None:
    house = LeaderHouse(retention_ms=-1, remote_log_copy_disable=True)
    house.fill(12)

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(5)

    run(main)
    assert house.stored(LOG) == {}


def test_copies_are_deleted_after_tiered_storage_was_disabled_and_made_again_after_it_was_enabled() -> None:
    house = LeaderHouse(retention_ms=-1, local_retention_ms=-1)
    house.fill(12)
    tiered = house.log.config
    closed = house.log.segments.active.base_offset

    async def main() -> None:
        async with house.leading():
            await asyncio.sleep(5)
            assert house.log.highest_copied_offset == closed - 1
            house.log.update_config(replace(tiered, tiered=False, remote_log_delete_on_disable=True))
            await asyncio.sleep(31)
            assert house.objects.objects == {}
            house.log.update_config(tiered)
            house.log.highest_copied_offset = -1  # as `Partition.on_config` does
            await asyncio.sleep(31)

    run(main)
    assert house.log.highest_copied_offset == closed - 1
    assert sum(len(data) for data in house.stored(LOG).values()) == sum(s.size for s in list(house.log.segments)[:-1])
