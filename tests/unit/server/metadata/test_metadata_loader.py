"""Committed records become images; transactions and snapshots take effect as a whole."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.topics import MIGRATING_DIRECTORY
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from barnabas.server.metadata.snapshot import SnapshotPolicy
from tests.unit.server.metadata.fakes import Watcher

A, B = UUID(int=10), UUID(int=11)


def topic(name: str, topic_id: UUID, partitions: int = 1) -> list[MetadataRecord]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=1,
                leader_epoch=0, partition_epoch=0,
            )
            for index in range(partitions)
        ),
    ]  # fmt: skip


class Feed:
    def __init__(self) -> None:
        self.publisher = Publisher(ClusterImage(cluster_id="c"))
        self.loader = Loader(self.publisher)
        self.watcher = Watcher()
        self.publisher.subscribe(self.watcher)
        self.offset = 0

    def commit(self, *records: MetadataRecord, size: int = 10) -> None:
        self.loader.on_commit(CommittedBatch(self.offset, 3, 77, records, size))
        self.offset += len(records)

    @property
    def image(self) -> ClusterImage:
        return self.publisher.image


def test_a_batch_is_an_image() -> None:
    feed = Feed()
    feed.commit(*topic("a", A, 2), FeatureLevelRecord(name="group.version", feature_level=1))
    assert (feed.image.offset, feed.image.leader_epoch, feed.image.provenance.timestamp_ms) == (3, 3, 77)
    assert feed.image.features.level("group.version") == 1
    assert feed.image.features.finalized_epoch == 3
    partition = feed.image.topics.partition("a", 1)
    assert partition is not None
    assert partition.isr is partition.replicas
    assert partition.directories == (MIGRATING_DIRECTORY,) * 2
    [(delta, image)] = feed.watcher.seen
    assert [each.name for each in delta.topics.created] == ["a"]
    assert image is feed.image


def test_partition_changes_merge() -> None:
    feed = Feed()
    feed.commit(*topic("a", A, 2))
    feed.commit(PartitionChangeRecord(topic_id=A, partition_id=1, isr=[2], leader=2))
    before, after = (feed.image.topics.partition("a", index) for index in (0, 1))
    assert before is not None
    assert after == replace(before, isr=(2,), leader=2, leader_epoch=1, partition_epoch=1)
    delta = feed.watcher.seen[-1][0]
    assert {index: p.leader for index, p in delta.topics.changed[A].partition_changes.items()} == {1: 2}
    feed.commit(PartitionChangeRecord(topic_id=A, partition_id=1, replicas=[2, 3], adding_replicas=[3]))
    merged = feed.image.topics.partition("a", 1)
    assert merged is not None
    assert (merged.leader_epoch, merged.partition_epoch, merged.replicas, merged.is_reassigning) == (1, 2, (2, 3), True)


def test_eligible_leaders_can_be_cleared() -> None:
    feed = Feed()
    feed.commit(*topic("a", A), *topic("b", B))
    feed.commit(
        PartitionChangeRecord(topic_id=A, partition_id=0, eligible_leader_replicas=[1]),
        PartitionChangeRecord(topic_id=B, partition_id=0, last_known_elr=[2]),
    )
    feed.commit(ClearElrRecord(topic_name="a"))
    feed.commit(ClearElrRecord())
    partitions = [feed.image.topics.partition(name, 0) for name in "ab"]
    assert [p and (p.elr, p.last_known_elr, p.partition_epoch) for p in partitions] == [((), (), 2), ((), (), 2)]


def test_a_deleted_topic_takes_its_configs_along_and_may_come_back() -> None:
    feed = Feed()
    feed.commit(*topic("a", A), ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"))
    feed.commit(RemoveTopicRecord(topic_id=A), *topic("a", B, 3))
    image = feed.image.topics.get("a")
    assert image is not None
    assert (image.topic_id, len(image.partitions)) == (B, 3)
    assert feed.image.topics.get_by_id(A) is None
    assert dict(feed.image.configs.topic("a")) == {}
    delta = feed.watcher.seen[-1][0]
    assert list(delta.topics.deleted) == [A]
    assert [each.topic_id for each in delta.topics.created] == [B]


def test_a_topic_made_and_deleted_in_one_batch_leaves_no_trace() -> None:
    feed = Feed()
    feed.commit(*topic("a", A), RemoveTopicRecord(topic_id=A))
    assert len(feed.image.topics) == 0
    assert feed.watcher.seen == []
    assert feed.image.offset == 2


def test_an_idle_beat_moves_the_offset_and_wakes_nobody() -> None:
    feed = Feed()
    feed.commit(NoOpRecord())
    feed.commit(NoOpRecord())
    assert feed.image.offset == 1
    assert feed.watcher.seen == []


def test_a_transaction_shows_when_it_ends() -> None:
    feed = Feed()
    feed.commit(ProducerIdsRecord(next_producer_id=5), BeginTransactionRecord(name="t"), *topic("a", A))
    assert feed.image.producer_ids.next_producer_id == 5
    assert feed.image.offset == 0
    feed.commit(*topic("b", B))
    assert len(feed.image.topics) == 0
    assert feed.loader.loaded_offset == 5
    feed.commit(EndTransactionRecord(), ProducerIdsRecord(next_producer_id=6))
    assert feed.image.topics.names() == ["a", "b"]
    assert (feed.image.producer_ids.next_producer_id, feed.image.offset) == (6, 7)


def test_an_aborted_transaction_never_was() -> None:
    feed = Feed()
    feed.commit(BeginTransactionRecord(), *topic("a", A))
    feed.commit(AbortTransactionRecord(reason="changed my mind"), ProducerIdsRecord(next_producer_id=9))
    assert len(feed.image.topics) == 0
    assert feed.image.producer_ids.next_producer_id == 9


def test_a_snapshot_replaces_everything_and_tells_the_difference() -> None:
    feed = Feed()
    feed.commit(*topic("a", A), *topic("b", B), ConfigRecord(resource_type=4, name="x", value="1"), size=500)
    assert feed.loader.bytes_since_snapshot == 500
    changed = topic("b", B, 2)
    feed.loader.on_snapshot(LoadedSnapshot(100, 7, 5, [*changed, ProducerIdsRecord(next_producer_id=4)]))
    delta, image = feed.watcher.seen[-1]
    assert (image.offset, image.leader_epoch, feed.loader.bytes_since_snapshot) == (99, 7, 0)
    assert [gone.name for gone in delta.topics.deleted.values()] == ["a"]
    assert list(delta.topics.changed[B].partition_changes) == [1]
    assert list(delta.configs.changed.values()) == [None]
    assert delta.next_producer_id == 4
    with pytest.raises(MetadataError, match="never twice"):
        feed.loader.on_commit(CommittedBatch(99, 7, 0, (NoOpRecord(),)))


def test_a_late_subscriber_is_told_everything() -> None:
    feed = Feed()
    feed.commit(*topic("a", A))
    late = Watcher()
    feed.publisher.subscribe(late)
    [(delta, image)] = late.seen
    assert [each.name for each in delta.topics.created] == ["a"]
    assert image is feed.image
    feed.publisher.unsubscribe(late)
    feed.commit(*topic("b", B))
    assert len(late.seen) == 1


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([PartitionRecord(topic_id=A)], "does not exist"),
        ([*topic("a", A), PartitionChangeRecord(topic_id=A, partition_id=4)], "no such partition"),
        ([TopicRecord(name="a", topic_id=A), PartitionRecord(topic_id=A, partition_id=1)], "no partition 0"),
        ([RemoveTopicRecord(topic_id=A)], "does not exist"),
        ([UnregisterBrokerRecord(broker_id=1, broker_epoch=2)], "not registered"),
        ([EndTransactionRecord()], "without BeginTransactionRecord"),
        ([BeginTransactionRecord(), BeginTransactionRecord()], "inside another"),
    ],
)
def test_a_log_that_contradicts_itself_stops_the_node(records: list[MetadataRecord], words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        Feed().commit(*records)


def test_when_a_snapshot_is_due() -> None:
    policy = SnapshotPolicy(max_bytes=1000, max_interval_ms=60_000)
    assert not policy.is_due(0, snapshot_ms=0, now_ms=10**9)
    assert not policy.is_due(999, snapshot_ms=0, now_ms=59_999)
    assert policy.is_due(1000, snapshot_ms=0, now_ms=0)
    assert policy.is_due(1, snapshot_ms=0, now_ms=60_000)
    assert not SnapshotPolicy(max_interval_ms=0).is_due(1, snapshot_ms=0, now_ms=10**12)
