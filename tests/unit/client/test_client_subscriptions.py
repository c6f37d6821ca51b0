"""A subscription or an assignment that is replaced: an empty one is `unsubscribe`, as in the Java client."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.client.values import GroupMetadata, OffsetAndMetadata
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.unit.client.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)


class Membership:
    """Stands for a coordinator whose member owns T0."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.listener = RebalanceListener()
        self.metadata = GroupMetadata("g", 3, "me")
        self.left: list[str] = []
        self.committed: list[Any] = []
        self._before_revoke: Any = None
        consumer._subscription.set_partitions([T0])
        consumer._subscription.seek(T0, 17)

    def detach(self, left: Any, before_revoke: Any) -> None:
        self._before_revoke = before_revoke

    async def commit(self, offsets: Any, *, deadline: float) -> None:
        self.committed.append(offsets)

    async def close(self, reason: str = "", *, leave: bool | None = None) -> None:
        await self._before_revoke()
        self.left.append(reason)


def consumer_of(fake: FakeCluster) -> AsyncConsumer:
    return AsyncConsumer(cluster=fake.cluster(), group_id="g")


async def test_an_empty_assignment_makes_place_for_a_subscription() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    consumer = consumer_of(fake)
    consumer.assign([T0])
    with pytest.raises(KafkaError, match=r"Call unsubscribe\(\) first"):
        consumer.subscribe(["t"])
    consumer.assign([])
    assert consumer.assignment() == frozenset()
    consumer.subscribe(["t"])
    assert consumer.subscription() == {"t"}
    consumer.subscribe([])
    consumer.assign([T0])
    assert not consumer.subscription()
    assert consumer.assignment() == {T0}
    await consumer.close()


async def test_an_empty_subscription_leaves_the_group_with_its_positions_committed() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    consumer = consumer_of(fake)
    consumer.subscribe(["t"])
    first: Any = Membership(consumer)
    consumer._coordinator = first
    consumer.subscribe([])
    consumer.assign([T0])
    consumer.seek(T0, 5)
    await consumer.poll(0)
    assert (first.left, first.committed) == (["the consumer unsubscribed"], [{T0: OffsetAndMetadata(17)}])
    consumer.assign([])
    consumer.subscribe(["t"])
    second: Any = Membership(consumer)
    consumer._coordinator = second
    consumer.assign(())
    await consumer.close()
    assert (second.left, second.committed) == (["the consumer unsubscribed"], [{T0: OffsetAndMetadata(17)}])
