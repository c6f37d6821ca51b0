"""Machine: the metadata that a client caches: brokers, topics, partition leaders. Updated from Metadata responses.

A response of a broker with outdated metadata is recognized by its older leader epochs: the cached leader stays
(KIP-320). A topic that was deleted and created again has another topic id; then all of its partitions are replaced.
Produce and Fetch responses may name a new leader, too (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.core.errors import ErrorCode, error_code
from barnabas.core.ids import NO_LEADER, NO_LEADER_EPOCH, NO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address that a broker advertises for the listener that this client uses."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.broker_id} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """The metadata of one partition."""

    topic: str
    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The metadata of one topic; `partitions[i]` is partition `i`."""

    name: str
    topic_id: UUID = NO_TOPIC_ID
    is_internal: bool = False
    partitions: tuple[TopicPartitionInfo, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    updated_at: float = 0.0
    """The loop time of the response."""

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


class MetadataCache:
    """The cached metadata of a cluster. Times are in seconds of the caller's monotonic clock."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicDescription] = {}
        self.version = 0
        """Increases with every change, so that values derived from the metadata can be cached."""
        self.marks_commits = True
        """Whether the client marks committed offsets with topic ids: until a broker refuses metadata of that length."""
        self.leadership_lost_at: dict[int, float] = {}
        """The time at which each broker was last found to have lost the leadership of a partition."""
        self._names: dict[UUID, str] = {}

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic; NO_TOPIC_ID if it is unknown, or if the brokers have no topic ids."""
        view = self.topics.get(topic)
        return NO_TOPIC_ID if view is None else view.topic_id

    def may_be(self, topic: str, topic_id: UUID) -> bool:
        """Whether the topic may have this id: false only if the topic is known to have another one."""
        return topic_id == NO_TOPIC_ID or self.topic_id(topic) in (topic_id, NO_TOPIC_ID)

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id; None if no response had the id."""
        return self._names.get(topic_id)

    def partition(self, topic: str, partition: int) -> TopicPartitionInfo | None:
        view = self.topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return None
        return view.partitions[partition]

    def apply(self, response: MetadataResponse, *, now: float, all_topics: bool = False) -> None:
        """Update the cache from a response. With `all_topics`, topics that are not in the response are removed."""
        self.version += 1
        if response.cluster_id is not None:
            self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self.brokers = {b.node_id: BrokerAddress(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        seen: set[str] = set()
        for topic in response.topics:
            if topic.name is None:
                self.forget_id(topic.topic_id)
                continue
            seen.add(topic.name)
            self._apply_topic(topic, now)
        if all_topics:
            for name in [name for name in self.topics if name not in seen]:
                self.forget(name)

    def _apply_topic(self, topic: MetadataResponseTopic, now: float) -> None:
        name = topic.name
        assert name is not None
        old = self.topics.get(name)
        partitions = sorted(topic.partitions, key=lambda p: p.partition_index)
        views = tuple(
            TopicPartitionInfo(
                name,
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
                error_code(p.error_code),
            )
            for p in partitions
        )
        if old is not None and old.topic_id == topic.topic_id:
            views = tuple(_newer(old.partitions, view) for view in views)
            for former, view in zip(old.partitions, views, strict=False):
                self._note_leader(former, view, now)
        elif old is not None:
            self._names.pop(old.topic_id, None)
        self.topics[name] = TopicDescription(
            name, topic.topic_id, topic.is_internal, views, error_code(topic.error_code), now
        )
        if topic.topic_id != NO_TOPIC_ID:
            self._names[topic.topic_id] = name

    def _note_leader(self, former: TopicPartitionInfo, view: TopicPartitionInfo, now: float) -> None:
        if former.leader not in (NO_LEADER, view.leader):
            self.leadership_lost_at[former.leader] = now

    def move_leader(self, topic: str, partition: int, leader: int, leader_epoch: int, *, now: float) -> bool:
        """Set a new leader from a Produce or Fetch response (KIP-951). Returns whether the cache has changed: false if
        the leader epoch is not newer, or if the partition or the leader's address is unknown."""
        view = self.partition(topic, partition)
        if view is None or leader < 0 or leader_epoch <= view.leader_epoch or leader not in self.brokers:
            return False
        old = self.topics[topic]
        moved = replace(view, leader=leader, leader_epoch=leader_epoch, error=ErrorCode.NONE)
        partitions = (*old.partitions[:partition], moved, *old.partitions[partition + 1 :])
        self.topics[topic] = replace(old, partitions=partitions)
        self._note_leader(view, moved, now)
        self.version += 1
        return True

    def add_broker(self, broker: BrokerAddress) -> None:
        """Add a broker from the endpoints of a Produce or Fetch response, or from FindCoordinator."""
        self.brokers[broker.broker_id] = broker

    def led_by(self, broker_id: int) -> list[str]:
        """The topics that have partitions whose leader is this broker."""
        return [name for name, view in self.topics.items() if any(p.leader == broker_id for p in view.partitions)]

    def mark_stale(self, topics: Iterable[str]) -> None:
        """Mark these topics for a refresh at their next use. Their cached metadata stays usable until then."""
        for name in topics:
            view = self.topics.get(name)
            if view is not None:
                self.topics[name] = replace(view, updated_at=float("-inf"))

    def forget(self, topic: str) -> None:
        view = self.topics.pop(topic, None)
        if view is not None:
            self._names.pop(view.topic_id, None)
            self.version += 1

    def forget_id(self, topic_id: UUID) -> None:
        name = self._names.get(topic_id)
        if name is not None:
            self.forget(name)


def _newer(old: tuple[TopicPartitionInfo, ...], view: TopicPartitionInfo) -> TopicPartitionInfo:
    """`view`, or the cached metadata of the same partition if that has a newer leader epoch."""
    if view.partition < len(old) and view.leader_epoch != NO_LEADER_EPOCH:
        known = old[view.partition]
        if known.leader_epoch > view.leader_epoch:
            return known
    return view
