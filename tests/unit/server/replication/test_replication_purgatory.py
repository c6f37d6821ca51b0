"""Waiting for commits and for bytes, with deadlines on the loop's clock."""

from __future__ import annotations

import asyncio

from barnabas.server.replication.purgatory import COMPLETE_NOW, CommitPurgatory, Purgatory, wait_for_bytes

SOON = 0.02
NEVER = 1e9


def test_commits_are_released_in_order_up_to_the_watermark() -> None:
    async def scenario() -> tuple[list[int | None], int]:
        queue: CommitPurgatory[int] = CommitPurgatory()
        waits = [asyncio.ensure_future(queue.wait(offset, NEVER)) for offset in (3, 5, 9)]
        await asyncio.sleep(0)
        queue.complete(5, lambda offset: offset * 10)
        first = [await waits[0], await waits[1]]
        left = len(queue)
        queue.complete_all(-1)
        return [*first, await waits[2]], left

    assert asyncio.run(scenario()) == ([30, 50, -1], 1)


def test_a_deadline_ends_the_wait_for_a_commit() -> None:
    async def scenario() -> tuple[int | None, int]:
        queue: CommitPurgatory[int] = CommitPurgatory()
        outcome = await queue.wait(3, asyncio.get_running_loop().time() + SOON)
        queue.complete(2, lambda offset: offset)
        return outcome, len(queue)

    assert asyncio.run(scenario()) == (None, 0)


def test_readers_wake_when_enough_bytes_have_come_anywhere() -> None:
    async def scenario() -> list[bool]:
        first, second = Purgatory(), Purgatory()
        waiting = asyncio.ensure_future(wait_for_bytes([first, second], 100, NEVER))
        await asyncio.sleep(0)
        seen = []
        for watch, count in ((first, 60), (second, 39), (first, 1)):
            watch.notify(count)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(waiting.done())
        return [*seen, len(first) == 0 == len(second)]

    assert asyncio.run(scenario()) == [False, False, True, True]


def test_look_again_wakes_at_once_and_deadlines_too() -> None:
    async def scenario() -> None:
        watch = Purgatory()
        waiting = asyncio.ensure_future(wait_for_bytes([watch], 1 << 40, NEVER))
        await asyncio.sleep(0)
        watch.notify(COMPLETE_NOW)
        await waiting
        await wait_for_bytes([watch], 1, asyncio.get_running_loop().time() + SOON)
        assert len(watch) == 0

    asyncio.run(scenario())


def test_a_cancelled_reader_leaves_no_trace() -> None:
    async def scenario() -> int:
        watch = Purgatory()
        waiting = asyncio.ensure_future(wait_for_bytes([watch], 1, NEVER))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return len(watch)

    assert asyncio.run(scenario()) == 0
