"""MetadataCache: newer leader epochs replace leaders, and recreated topics replace everything."""

from __future__ import annotations

from uuid import UUID

from barnabas.client.cluster.metadata import BrokerAddress, MetadataCache
from barnabas.protocol.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

OLD, NEW = UUID(int=1), UUID(int=2)


def response(leader: int, epoch: int, topic_id: UUID = OLD, partitions: int = 1, error: int = 0) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"h{n}", port=n) for n in (1, 2, 3)],
        cluster_id="c",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=topic_id,
                error_code=error,
                partitions=[
                    MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=epoch)
                    for i in reversed(range(partitions))
                ],
            )
        ],
    )


def leader(cache: MetadataCache, partition: int = 0) -> tuple[int, int]:
    view = cache.partition("t", partition)
    assert view is not None
    return view.leader, view.leader_epoch


def test_an_older_leader_epoch_does_not_replace_the_leader() -> None:
    cache = MetadataCache()
    cache.apply(response(1, 5), now=0.0)
    cache.apply(response(2, 4), now=1.0)
    assert leader(cache) == (1, 5)
    cache.apply(response(2, 6), now=2.0)
    assert leader(cache) == (2, 6)


def test_a_recreated_topic_replaces_all_partitions() -> None:
    cache = MetadataCache()
    cache.apply(response(1, 5), now=0.0)
    cache.apply(response(2, 0, NEW), now=1.0)
    assert leader(cache) == (2, 0)
    assert cache.topic_name(OLD) is None
    assert cache.topic_name(NEW) == "t"


def test_leader_hints() -> None:
    cache = MetadataCache()
    cache.apply(response(1, 5), now=0.0)
    assert not cache.move_leader("t", 0, 2, 5, now=1.0)
    assert not cache.move_leader("t", 0, 9, 6, now=1.0)
    assert not cache.move_leader("u", 0, 2, 6, now=1.0)
    cache.add_broker(BrokerAddress(9, "h9", 9))
    assert cache.move_leader("t", 0, 9, 6, now=1.0)
    assert leader(cache) == (9, 6)


def test_partitions_are_in_order_and_unknown_ones_are_none() -> None:
    cache = MetadataCache()
    cache.apply(response(1, 0, partitions=3), now=0.0)
    assert [p.partition for p in cache.topics["t"].partitions] == [0, 1, 2]
    assert cache.partition("t", 3) is None
    assert cache.partition("u", 0) is None


def test_a_response_with_all_topics_removes_the_others() -> None:
    cache = MetadataCache()
    cache.apply(response(1, 0), now=0.0)
    version = cache.version
    cache.apply(MetadataResponse(topics=[]), now=1.0)
    assert "t" in cache.topics
    cache.apply(MetadataResponse(topics=[]), now=1.0, all_topics=True)
    assert "t" not in cache.topics
    assert cache.version > version
