"""Copies and reads keep to their limits of bytes per second, which may change while they wait.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from barnabas.protocol.records.log_files import LOG
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.server.tiering.quotas import RemoteQuota
from barnabas.server.tiering.reading.partition_reader import RemotePartitionReader
from barnabas.server.tiering.slots import Slots
from tests.unit.server.tiering.house import run
from tests.unit.server.tiering.segments import PARTITION
from tests.unit.server.tiering.test_tiering_leaders import CONFIG, LeaderHouse
from tests.unit.server.tiering.test_tiering_partition_reader import LocalHouse, wanted


def test_the_rate_comes_back_to_the_limit_before_the_next_use() -> None:
    quota = RemoteQuota(100, QuotaWindows(11, 1))
    assert quota.throttle_ms(0) == 0
    quota.record(500, 0)
    assert quota.throttle_ms(0) == 4_000  # 500 bytes in one second: 400 % above the limit
    assert quota.throttle_ms(4_000) > 0
    assert quota.throttle_ms(5_000) == 0  # 500 bytes in five seconds
    assert (quota.times.average_ms(5_000), quota.times.max_ms(5_000)) == (2_500.0, 4_000)
    assert (quota.times.average_ms(70_000), quota.times.max_ms(70_000)) == (0.0, 0)


def test_a_raised_limit_applies_to_what_was_used_before() -> None:
    quota = RemoteQuota(100)
    quota.record(500, 0)
    assert quota.throttle_ms(10) > 0
    quota.bytes_per_second = 1_000
    assert quota.throttle_ms(10) == 0


def test_the_copier_waits_until_the_rate_is_below_the_limit() -> None:
    house = LeaderHouse(retention_ms=-1)
    house.fill(40)
    sizes = [segment.size for segment in house.log.segments][:-1]
    per_second = sizes[0] // 2
    config = replace(CONFIG, remote_log_manager_copy_max_bytes_per_second=per_second)

    async def main() -> None:
        house.leaders.reconfigure(config)
        async with house.leading():
            await asyncio.sleep(1.0)
            assert list(house.stored(LOG)) == [0], "the first segment is twice what a second allows"
            await asyncio.sleep(sum(sizes[:3]) / per_second)
            assert 2 <= len(house.stored(LOG)) <= 4
            assert len(house.stored(LOG)) < len(sizes)
            assert house.leaders.copy_quota.times.max_ms(int(asyncio.get_running_loop().time() * 1000)) > 0
            house.leaders.reconfigure(CONFIG)
            await asyncio.sleep(2.0)
            assert len(house.stored(LOG)) == len(sizes)

    run(main)


def test_what_was_read_counts_against_the_limit_of_reads() -> None:
    house = LocalHouse()

    async def main(reader: RemotePartitionReader) -> None:
        reader.quota.bytes_per_second = 10
        assert not reader.is_throttled()
        assert (await reader.read(PARTITION, house.log, wanted(0))).data
        assert reader.is_throttled()
        reader.quota.bytes_per_second = 1_000_000
        assert not reader.is_throttled()

    house.go(main)


def test_slots_can_be_added_and_removed_while_all_are_taken() -> None:
    async def main() -> None:
        slots = Slots(2)
        release = asyncio.Event()
        active = highest = 0

        async def work() -> None:
            nonlocal active, highest
            async with slots:
                active += 1
                highest = max(highest, active)
                await release.wait()
                await asyncio.sleep(1)
                active -= 1

        tasks = [asyncio.ensure_future(work()) for _ in range(12)]
        await asyncio.sleep(0.1)
        assert active == 2
        slots.resize(4)
        await asyncio.sleep(0.1)
        assert active == 4
        slots.resize(1)
        slots.resize(3)
        slots.resize(1)
        release.set()
        await asyncio.sleep(1.5)
        assert active == 1
        highest = 0
        await asyncio.gather(*tasks)
        assert highest == 1
        slots.resize(2)
        assert slots.count == 2
        async with slots, slots:
            pass

    run(main)


def test_slots_that_are_free_can_be_removed() -> None:
    async def main() -> None:
        slots = Slots(3)
        slots.resize(1)
        async with slots:
            waiting = asyncio.ensure_future(slots.__aenter__())
            await asyncio.sleep(1)
            assert not waiting.done()
        await waiting
        await slots.__aexit__()

    run(main)
