"""Long work is divided into steps."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.work import TASKS_AT_ONCE, for_each


def test_for_each_runs_a_few_at_a_time_and_returns_the_results_in_order() -> None:
    running = most = 0
    started: list[int] = []

    async def double(number: int) -> int:
        nonlocal running, most
        started.append(number)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 2 * number

    count = 3 * TASKS_AT_ONCE + 1
    assert asyncio.run(for_each(double, range(count))) == [2 * number for number in range(count)]
    assert started == list(range(count))
    assert most == TASKS_AT_ONCE


def test_for_each_starts_no_more_after_an_error() -> None:
    started: list[int] = []

    async def fail(number: int) -> None:
        started.append(number)
        if number == 1:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        asyncio.run(for_each(fail, range(10 * TASKS_AT_ONCE)))
    assert len(started) == TASKS_AT_ONCE
