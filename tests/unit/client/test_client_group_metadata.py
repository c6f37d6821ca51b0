"""Who a classic member commits as: who it was when it was given what it read."""

from __future__ import annotations

import asyncio

from barnabas.client.consumer.classic_coordinator import ClassicCoordinator
from barnabas.client.consumer.coordinator import GroupTiming
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.values import GroupMetadata
from barnabas.core.errors import ErrorCode
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_client_membership import A0, A1, member, settle


def test_a_fenced_member_stays_who_it_was_until_it_is_given_something_new() -> None:
    """Seed 1475: fenced between its poll and its commit, it committed in nobody's name, and that is never refused."""

    async def run() -> None:
        async with FakeCluster().cluster() as cluster:
            who = member()
            coordinator = ClassicCoordinator(
                cluster, SubscriptionState(), who, GroupTiming(), wake=lambda: None, before_revoke=_nothing
            )
            assert coordinator.metadata == GroupMetadata("g")
            coordinator._outcome = settle(who, A0)
            await coordinator._take_assignment()
            first = GroupMetadata("g", 1, "me")
            assert coordinator.metadata == first

            coordinator._on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
            assert (who.generation_id, who.member_id) == (-1, "")
            assert coordinator.metadata == first

            step = settle(who, A1, generation=2)  # joined again, and nothing of it given out yet
            assert coordinator.metadata == first
            coordinator.on_commit_refused(ErrorCode.ILLEGAL_GENERATION, first)
            assert (who.generation_id, who.wants_to_join) == (2, False)
            coordinator._outcome = step
            await coordinator._take_assignment()
            assert coordinator.metadata == GroupMetadata("g", 2, "me")
            coordinator.on_commit_refused(ErrorCode.ILLEGAL_GENERATION, coordinator.metadata)
            assert who.wants_to_join

    asyncio.run(run())


async def _nothing() -> None:
    """Nothing is to be committed."""
