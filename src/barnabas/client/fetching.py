"""Codec: Fetch requests and responses in terms of topic-partitions, for the consumer and the partition reader alike.

Requests have topic ids from version 13 on. A topic with an unknown id limits the request to version 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.client.cluster.metadata import BrokerAddress
from barnabas.client.values import FetchedBatches, IsolationLevel
from barnabas.core.ids import CONSUMER_REPLICA_ID, NO_LEADER_EPOCH, NO_TOPIC_ID, TopicPartition
from barnabas.protocol.records.batch import last_batch
from barnabas.protocol.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from barnabas.client.cluster.cluster import Cluster

NO_TOPIC_IDS_VERSION: Final = 12
"""The last version with topic names."""
NO_SESSION: Final = (0, -1)
"""Session id and epoch of a fetch outside of any session."""


@dataclass(frozen=True, slots=True)
class ConsumerFetchConfig:
    """The size limits of one fetch, and the time for which the broker may wait for `min_bytes`."""

    max_bytes: int = 52_428_800
    partition_max_bytes: int = 1_048_576
    min_bytes: int = 1
    max_wait_ms: int = 500
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    rack: str = ""


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """One partition to fetch, and its position."""

    partition: TopicPartition
    position: int
    topic_id: UUID = NO_TOPIC_ID
    leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH
    bytes_max: int | None = None
    """Replaces the `partition_max_bytes` of the limits."""


def build_fetch(
    targets: Iterable[FetchTarget],
    limits: ConsumerFetchConfig,
    *,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Mapping[TopicPartition, UUID] | None = None,
) -> tuple[FetchRequest, int | None]:
    """The request, and its highest possible version (None: any)."""
    topics: dict[str, FetchTopic] = {}
    max_version: int | None = None
    for target in targets:
        name = target.partition.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=target.topic_id)
            if target.topic_id == NO_TOPIC_ID:
                max_version = NO_TOPIC_IDS_VERSION
        topic.partitions.append(
            FetchPartition(
                partition=target.partition.partition,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=target.position,
                last_fetched_epoch=target.last_fetched_epoch,
                partition_max_bytes=limits.partition_max_bytes if target.bytes_max is None else target.bytes_max,
            )
        )
    dropped: dict[str, ForgottenTopic] = {}
    for partition, topic_id in (forgotten or {}).items():
        entry = dropped.get(partition.topic)
        if entry is None:
            entry = dropped[partition.topic] = ForgottenTopic(topic=partition.topic, topic_id=topic_id)
        entry.partitions.append(partition.partition)
    session_id, session_epoch = session
    request = FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(limits.isolation),
        session_id=session_id,
        session_epoch=session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(dropped.values()),
        rack_id=limits.rack,
    )
    return request, max_version


def partitions_of(response: FetchResponse, names: Mapping[UUID, str]) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Every partition in a response. `names` has the names of the request's topic ids."""
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id)
        if name is None:
            continue
        for data in topic.partitions:
            yield TopicPartition(name, data.partition_index), data


def next_position(buffer: Any, position: int) -> int:
    """The offset after the last whole batch in `buffer`, or `position` when there is none."""
    return end_of(buffer, position)[0]


def end_of(buffer: Any, position: int) -> tuple[int, int]:
    """The offset after the last whole batch in `buffer`, or `position` when there is none; and that batch's epoch.

    Control batches, aborted batches and gaps of compaction count: the log continues after a batch's last offset.
    """
    last = last_batch(buffer)
    if last is None:
        return position, NO_LEADER_EPOCH
    return max(last.next_offset, position), last.partition_leader_epoch


def fetched(partition: TopicPartition, position: int, data: PartitionData) -> FetchedBatches | None:
    """The batches of one partition, or None when there are none."""
    if not data.records:
        return None
    assert isinstance(data.records, (bytes, bytearray, memoryview))  # a decoded message never has a sequence of buffers
    end, end_epoch = end_of(data.records, position)
    aborted = tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions or ())
    return FetchedBatches(
        partition,
        position,
        data.records,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        aborted,
        end,
        end_epoch,
    )


def note_leader_hints(cluster: Cluster, response: Any, partition: TopicPartition, leader: Any) -> bool:
    """Apply the new leader in a Produce or Fetch response (KIP-951). Returns whether the leader was unknown."""
    if leader.leader_id < 0:
        return False
    for node in response.node_endpoints:
        if node.node_id not in cluster.metadata.brokers:
            cluster.metadata.add_broker(BrokerAddress(node.node_id, node.host, node.port, node.rack))
    return cluster.metadata.move_leader(
        partition.topic, partition.partition, leader.leader_id, leader.leader_epoch, now=cluster.now()
    )
