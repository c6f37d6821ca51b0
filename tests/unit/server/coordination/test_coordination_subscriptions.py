"""Heartbeats with very many topics."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest

from barnabas.core import work
from barnabas.core.ids import sorted_ids
from barnabas.server.coordination.group.consumer.member import topic_names_of
from barnabas.server.coordination.group.subscriptions import SMALL, sort_subscription
from tests.steps import longest_step


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"], ["b", "a"], ["a", "a"], ["b", "a", "b"], ["a", "b", "b"]])
def test_the_names_of_a_subscription_are_sorted_and_distinct(names: list[str]) -> None:
    assert topic_names_of(names) == tuple(sorted(set(names)))


def test_a_large_subscription_is_sorted_in_a_step_of_its_own() -> None:
    names = [f"x{number}" for number in range(20_000)]

    async def scenario() -> None:
        assert await sort_subscription(names[:SMALL]) is not None
        task = asyncio.ensure_future(sort_subscription(names))
        await asyncio.sleep(0)
        assert not task.done(), "the sort is followed by a pause"
        assert await task == sorted(names)
        _, longest = await longest_step(sort_subscription(names))
        assert longest <= work.STEP_UNITS

    asyncio.run(scenario())


def test_topic_ids_are_sorted_as_uuids_are() -> None:
    rng = random.Random(1)
    ids = [UUID(int=rng.getrandbits(128)) for _ in range(100)]
    assert sorted_ids(ids) == sorted(ids)
