"""Joins of very many members of one consumer group, counted: a join does not visit the subscriptions of all members."""

from __future__ import annotations

import random

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.server.coordination.group.config import NoGroupConfigs
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.shard import GroupShard
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.timeline import Timeline
from tests.configs import group_coordinator_config
from tests.unit.server.coordination.kit import START_MS, Catalog, Context, seeded

MEMBERS = 300
TOPICS = 50


class CountedName(str):
    """The name of a topic that counts how often it is looked up."""

    __slots__ = ()
    hashes = 0

    def __hash__(self) -> int:
        CountedName.hashes += 1
        return super().__hash__()


NAMES = [CountedName(f"u{index}") for index in range(TOPICS)]


class Joins:
    """A coordinator, whose members join and leave."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        catalog = Catalog(**dict.fromkeys(map(str, NAMES), 4))
        self.shard = GroupShard(group_coordinator_config(), NoGroupConfigs(), catalog, self.timeline)

    def beat(self, member_id: str, epoch: int = 0, names: list[str] | None = None) -> int:
        """The member epoch of the response."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=names,
            topic_partitions=[] if epoch == 0 else None,
        )
        operation = WriteOperation(START_MS, seeded())
        return self.shard.consumer_group_heartbeat(operation, Context(1), request).member_epoch

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.table.consumer("g")
        assert group is not None
        return group

    def subscribed(self) -> frozenset[str]:
        """The topics of all members, from their subscriptions."""
        return frozenset(name for member in self.group.members.values() for name in member.topic_names)


def test_a_join_looks_up_its_own_topics_and_not_those_of_the_group() -> None:
    joins, rng = Joins(), random.Random(1)
    for index in range(20):  # all topics are subscribed to
        joins.beat(f"early{index}", names=sorted(NAMES))
    CountedName.hashes = 0
    for index in range(MEMBERS):
        joins.beat(f"m{index}", names=sorted(rng.sample(NAMES, 5)))
    assert joins.group.subscribed_topics() == joins.subscribed()
    assert CountedName.hashes <= 40 * MEMBERS


def test_the_topics_of_a_group_follow_joins_leaves_and_other_subscriptions() -> None:
    joins = Joins()
    joins.beat("a", names=["u1", "u2"])
    epoch = joins.beat("b", names=["u2", "u3"])
    assert joins.group.subscribed_topics() == {"u1", "u2", "u3"}
    joins.beat("b", epoch, names=["u2", "u4"])
    assert joins.group.subscribed_topics() == {"u1", "u2", "u4"}
    joins.beat("a", -1)
    assert joins.group.subscribed_topics() == {"u2", "u4"}


def test_a_join_that_is_rolled_back_takes_its_topics_with_it() -> None:
    joins = Joins()
    joins.beat("a", names=["u1"])
    mark, hash_before = joins.timeline.mark(), joins.group.metadata_hash.value
    joins.beat("b", names=["u2"])
    assert joins.group.subscribed_topics() == {"u1", "u2"}
    joins.timeline.rollback(mark)
    assert joins.group.subscribed_topics() == {"u1"}
    assert joins.group.metadata_hash.value == hash_before
    with pytest.raises(KafkaError) as raised:
        joins.beat("b", 1)
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID
