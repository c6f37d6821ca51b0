"""Heartbeats with very many topics."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest

from barnabas.core import work
from barnabas.core.ids import sorted_ids
from barnabas.protocol.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.server.coordination.group.config import NoGroupConfigs
from barnabas.server.coordination.group.consumer import target
from barnabas.server.coordination.group.consumer.member import topic_names_of
from barnabas.server.coordination.group.shard import GroupShard
from barnabas.server.coordination.group.subscriptions import SMALL, sort_subscription
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import CatalogTopic
from barnabas.server.coordination.timeline import Timeline
from tests.configs import group_coordinator_config
from tests.steps import longest_step
from tests.unit.server.coordination.kit import Catalog, Context


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


def test_the_data_of_a_topic_are_built_once_for_all_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    facts = target._facts

    def counted(view: CatalogTopic) -> bytes:
        built.append(view.name)
        return facts(view)

    monkeypatch.setattr(target, "_facts", counted)
    catalog = Catalog(a=1, b=2)
    hashes = {target.metadata_hash(catalog, frozenset({"a", "b", "c"})) for _ in range(10)}
    assert len(hashes) == 1
    assert built == ["a", "b"]
    assert target.metadata_hash(Catalog(a=1, b=3), frozenset({"a", "b"})) not in hashes
    assert target.metadata_hash(catalog, frozenset({"c"})) == 0


SHARE_PARTITIONS = 1_000


class CountedTimes(dict[Any, int]):
    """Counts the share partitions that are visited."""

    lookups = 0

    def get(self, key: Any, default: Any = None) -> Any:
        CountedTimes.lookups += 1
        return super().get(key, default)


def _share_group() -> tuple[GroupShard, WriteOperation]:
    shard = GroupShard(group_coordinator_config(), NoGroupConfigs(), Catalog(t=SHARE_PARTITIONS), Timeline())
    return shard, WriteOperation(0, random.Random(1))


def _share_heartbeat(member_id: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id="s", member_id=member_id, subscribed_topic_names=["t"])


def test_a_heartbeat_looks_at_no_partition_of_a_topic_whose_share_partitions_are_initialized() -> None:
    shard, op = _share_group()
    _, needed = shard.share_groups.heartbeat(op, Context(1), _share_heartbeat("m"))
    shard.share_groups.finish_initialization(op, "s", needed, {})
    group = shard.table.find_share("s")
    group.requested_at_ms = CountedTimes()
    CountedTimes.lookups = 0
    _, needed = shard.share_groups.heartbeat(op, Context(1), _share_heartbeat("m"))
    assert not needed
    assert CountedTimes.lookups == 0


def test_members_that_join_while_share_partitions_are_initialized_visit_them_once() -> None:
    shard, op = _share_group()
    _, needed = shard.share_groups.heartbeat(op, Context(1), _share_heartbeat("m"))
    assert needed
    group = shard.table.find_share("s")
    group.requested_at_ms = CountedTimes(group.requested_at_ms)
    CountedTimes.lookups = 0
    for number in range(20):
        _, more = shard.share_groups.heartbeat(op, Context(1), _share_heartbeat(f"m{number}"))
        assert not more
    assert CountedTimes.lookups == SHARE_PARTITIONS
    later = WriteOperation(shard.config.group_share_initialize_retry_interval_ms, random.Random(1))
    _, again = shard.share_groups.heartbeat(later, Context(1), _share_heartbeat("m"))
    assert again == needed, "requests without a result are repeated"


def test_a_failed_initialization_is_requested_by_the_next_heartbeat() -> None:
    shard, op = _share_group()
    _, needed = shard.share_groups.heartbeat(op, Context(1), _share_heartbeat("m"))
    shard.share_groups.heartbeat(op, Context(1), _share_heartbeat("n"))
    shard.share_groups.finish_initialization(op, "s", {}, needed)
    _, again = shard.share_groups.heartbeat(op, Context(1), _share_heartbeat("m"))
    assert again == needed
