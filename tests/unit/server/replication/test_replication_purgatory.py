"""Delayed operations that wait for a high watermark or for bytes, with deadlines on the loop's clock."""

from __future__ import annotations

import asyncio

from barnabas.server.replication.purgatory import COMPLETE_NOW, CommitPurgatory, Purgatory, wait_for_bytes

SOON = 0.02
NEVER = 1e9


def test_operations_up_to_the_high_watermark_are_completed_in_order() -> None:
    async def scenario() -> tuple[list[int | None], int]:
        purgatory: CommitPurgatory[int] = CommitPurgatory()
        waits = [asyncio.ensure_future(purgatory.wait(offset, NEVER)) for offset in (3, 5, 9)]
        await asyncio.sleep(0)
        purgatory.complete(5, lambda offset: offset * 10)
        first = [await waits[0], await waits[1]]
        left = len(purgatory)
        purgatory.complete_all(-1)
        return [*first, await waits[2]], left

    assert asyncio.run(scenario()) == ([30, 50, -1], 1)


def test_deadline_completes_an_operation_with_none() -> None:
    async def scenario() -> tuple[int | None, int]:
        purgatory: CommitPurgatory[int] = CommitPurgatory()
        result = await purgatory.wait(3, asyncio.get_running_loop().time() + SOON)
        purgatory.complete(2, lambda offset: offset)
        return result, len(purgatory)

    assert asyncio.run(scenario()) == (None, 0)


def test_operation_completes_when_all_its_purgatories_together_have_enough_bytes() -> None:
    async def scenario() -> list[bool]:
        first, second = Purgatory(), Purgatory()
        waiting = asyncio.ensure_future(wait_for_bytes([first, second], 100, NEVER))
        await asyncio.sleep(0)
        seen = []
        for purgatory, count in ((first, 60), (second, 39), (first, 1)):
            purgatory.notify(count)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(waiting.done())
        return [*seen, len(first) == 0 == len(second)]

    assert asyncio.run(scenario()) == [False, False, True, True]


def test_complete_now_and_the_deadline_complete_an_operation() -> None:
    async def scenario() -> None:
        purgatory = Purgatory()
        waiting = asyncio.ensure_future(wait_for_bytes([purgatory], 1 << 40, NEVER))
        await asyncio.sleep(0)
        purgatory.notify(COMPLETE_NOW)
        await waiting
        await wait_for_bytes([purgatory], 1, asyncio.get_running_loop().time() + SOON)
        assert len(purgatory) == 0

    asyncio.run(scenario())


def test_cancelled_operation_leaves_the_purgatory() -> None:
    async def scenario() -> int:
        purgatory = Purgatory()
        waiting = asyncio.ensure_future(wait_for_bytes([purgatory], 1, NEVER))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return len(purgatory)

    assert asyncio.run(scenario()) == 0
