"""Machine: the state of one share group (KIP-932), which results from replaying its records, and queries about it.

As in consumer groups, three epochs (group, assignment, member) show the progress of a change. A member gets its whole
new assignment with its next heartbeat: members share partitions, so no partition must be revoked first.

A share group also stores which share partitions have state at the share coordinator:

    initializing   requested from the share coordinator, without a response yet
    initialized    may be assigned to members
    deleting       requested to be deleted, without a response yet
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, sorted_ids
from barnabas.server.coordination.group.consumer.member import (
    NO_PARTITIONS,
    Partitions,
    partitions_of,
    target_entries,
    topic_names_of,
)
from barnabas.server.coordination.group.share import records as rec
from barnabas.server.coordination.group.share.ports import StateTopic, StateTopics
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.ports import TopicCatalog
from barnabas.server.coordination.timeline import Timeline, TimelineCell, TimelineMap

MEMBER_STABLE: Final = 0


class ShareGroupState(Enum):
    """The values are the names in ShareGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroupMember(Struct, frozen=True):
    """A member: its metadata and its current assignment, which are two records in the log."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    member_epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)


class StateTable(Struct, frozen=True):
    """Which share partitions have state at the share coordinator (ShareGroupStatePartitionMetadata, kind 15)."""

    initializing: StateTopics = field(default_factory=dict)
    initialized: StateTopics = field(default_factory=dict)
    deleting: Mapping[TopicId, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.initializing and not self.initialized and not self.deleting

    def assignable(self) -> dict[TopicId, frozenset[int]]:
        return {topic_id: topic.partitions for topic_id, topic in self.initialized.items()}

    def known(self, topic_id: TopicId) -> frozenset[int]:
        """The partitions of the topic that are initialized or initializing."""
        topics = [found for found in (self.initialized.get(topic_id), self.initializing.get(topic_id)) if found]
        return frozenset(p for topic in topics for p in topic.partitions)

    def mark_initializing(self, topics: StateTopics) -> StateTable:
        """A copy of this table in which these share partitions are initializing, even if they were in another state."""
        return StateTable(
            _union(self.initializing, topics),
            _without(self.initialized, topics),
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics},
        )

    def mark_initialized(self, topics: StateTopics) -> StateTable:
        """A copy of this table in which these share partitions are initialized."""
        return StateTable(_without(self.initializing, topics), _union(self.initialized, topics), self.deleting)

    def remove_initializing(self, topics: StateTopics) -> StateTable:
        """A copy of this table without these initializing share partitions, whose initialization failed."""
        return replace(self, initializing=_without(self.initializing, topics))

    def mark_deleting(self, topic_ids: Iterable[TopicId]) -> StateTable:
        """A copy of this table in which these topics are being deleted."""
        names = {t: topic.name for topics in (self.initializing, self.initialized) for t, topic in topics.items()}
        chosen = {topic_id: names[topic_id] for topic_id in topic_ids if topic_id in names}
        return StateTable(
            {t: topic for t, topic in self.initializing.items() if t not in chosen},
            {t: topic for t, topic in self.initialized.items() if t not in chosen},
            {**self.deleting, **chosen},
        )

    def remove_deleting(self, topic_ids: Iterable[TopicId]) -> StateTable:
        """A copy of the table that no longer lists these topics as being deleted."""
        gone = set(topic_ids)
        return replace(self, deleting={t: name for t, name in self.deleting.items() if t not in gone})


def _union(one: StateTopics, other: StateTopics) -> dict[TopicId, StateTopic]:
    united = dict(one)
    for topic_id, topic in other.items():
        before = united.get(topic_id)
        united[topic_id] = topic if before is None else replace(topic, partitions=topic.partitions | before.partitions)
    return united


def _without(topics: StateTopics, gone: StateTopics) -> dict[TopicId, StateTopic]:
    left: dict[TopicId, StateTopic] = {}
    for topic_id, topic in topics.items():
        partitions = topic.partitions - gone[topic_id].partitions if topic_id in gone else topic.partitions
        if partitions:
            left[topic_id] = replace(topic, partitions=partitions)
    return left


class RequestedAll(Struct, frozen=True, eq=False):
    """A state of the group in which each subscribed share partition is initialized or has been requested. While many
    members join a large group, each heartbeat would visit all share partitions again."""

    catalog: TopicCatalog | None
    states: StateTable | None
    subscribed: Collection[str]
    until_ms: int
    """The time at which the first request may have to be repeated."""

    def covers(self, catalog: TopicCatalog, states: StateTable, subscribed: Collection[str], now_ms: int) -> bool:
        """Whether this is the state of the group at this time."""
        same = self.catalog is catalog and self.states is states
        return same and now_ms < self.until_ms and self.subscribed == subscribed


NOT_ALL_REQUESTED: Final = RequestedAll(None, None, frozenset(), 0)


class ShareGroup:
    """A share group. Only the `apply` methods change the replicated state."""

    def __init__(self, group_id: str, timeline: Timeline) -> None:
        self.group_id = group_id
        self.epoch = TimelineCell(timeline, 0)
        self.metadata_hash = TimelineCell(timeline, 0)
        self.assignment_epoch = TimelineCell(timeline, 0)
        self.assigned_at_ms = TimelineCell(timeline, 0)
        self.members: TimelineMap[str, ShareGroupMember] = TimelineMap(timeline)
        self.target: TimelineMap[str, Partitions] = TimelineMap(timeline)
        self.states = TimelineCell(timeline, StateTable())
        self.resolved_topics_version = TimelineCell(timeline, 0)
        """The version of the topic metadata for which the subscriptions were last resolved. Not in the log."""
        self.requested_at_ms: dict[tuple[TopicId, int], int] = {}
        """The time of the last request to initialize each share partition. Not in the log."""
        self.requested_all = NOT_ALL_REQUESTED
        """The last heartbeat after which no share partition had to be requested. Not in the log."""

    # -- queries -------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not len(self.members)

    def committed_state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members.committed() else ShareGroupState.EMPTY

    def find_member(self, member_id: str) -> ShareGroupMember:
        """The member with this id. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id) or NO_PARTITIONS

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*{member.topic_names for member in self.members.values()})

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values())

    # -- replay --------------------------------------------------------------------------------------------------

    def apply_metadata(self, value: rec.ShareGroupMetadataValue) -> None:
        self.epoch.value = value.epoch
        self.metadata_hash.value = value.metadata_hash

    def apply_member(self, member_id: str, value: rec.ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(member_id)
            return
        self.members[member_id] = replace(
            self.members.get(member_id) or ShareGroupMember(member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=topic_names_of(value.subscribed_topic_names),
        )

    def apply_current(self, member_id: str, value: rec.ShareGroupCurrentMemberAssignmentValue | None) -> None:
        before = self.members.get(member_id)
        if value is None:
            if before is not None:
                self.members[member_id] = replace(before, member_epoch=-1, previous_epoch=-1, assigned=NO_PARTITIONS)
            return
        self.members[member_id] = replace(
            before or ShareGroupMember(member_id),
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=partitions_of(value.assigned_partitions),
        )

    def apply_target(self, member_id: str, value: rec.ShareGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.target.pop(member_id)
        else:
            self.target[member_id] = partitions_of(value.topic_partitions)

    def apply_target_epoch(self, value: rec.ShareGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch.value = -1 if value is None else value.assignment_epoch
        self.assigned_at_ms.value = 0 if value is None else value.assignment_timestamp

    def apply_states(self, value: rec.ShareGroupStatePartitionMetadataValue | None) -> None:
        if value is None:
            self.states.value = StateTable()
            return
        self.states.value = StateTable(
            _topics(value.initializing_topics),
            _topics(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )

    # -- records -------------------------------------------------------------------------------------------------

    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        value = rec.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        return CoordinatorRecord(rec.ShareGroupMetadataKey(group_id=self.group_id), value)

    def member_record(self, member: ShareGroupMember) -> CoordinatorRecord:
        value = rec.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
        )
        key = rec.ShareGroupMemberMetadataKey(group_id=self.group_id, member_id=member.member_id)
        return CoordinatorRecord(key, value)

    def current_record(self, member: ShareGroupMember) -> CoordinatorRecord:
        value = rec.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_epoch,
            state=MEMBER_STABLE,
            assigned_partitions=target_entries(member.assigned),
        )
        key = rec.ShareGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member.member_id)
        return CoordinatorRecord(key, value)

    def target_record(self, member_id: str, partitions: Partitions) -> CoordinatorRecord:
        key = rec.ShareGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id)
        value = rec.ShareGroupTargetAssignmentMemberValue(topic_partitions=target_entries(partitions))
        return CoordinatorRecord(key, value)

    def target_epoch_record(self, epoch: int, now_ms: int) -> CoordinatorRecord:
        key = rec.ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id)
        value = rec.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        return CoordinatorRecord(key, value)

    def states_record(self, states: StateTable) -> CoordinatorRecord:
        key = rec.ShareGroupStatePartitionMetadataKey(group_id=self.group_id)
        value = rec.ShareGroupStatePartitionMetadataValue(
            initializing_topics=_entries(states.initializing),
            initialized_topics=_entries(states.initialized),
            deleting_topics=[
                rec.TopicInfo(topic_id=topic_id, topic_name=states.deleting[topic_id])
                for topic_id in sorted_ids(states.deleting)
            ],
        )
        return CoordinatorRecord(key, value)

    def member_tombstones(self, member_id: str) -> Iterator[CoordinatorRecord]:
        """The tombstones of a removed member."""
        keys = {"group_id": self.group_id, "member_id": member_id}
        yield CoordinatorRecord(rec.ShareGroupCurrentMemberAssignmentKey(**keys), None)
        yield CoordinatorRecord(rec.ShareGroupTargetAssignmentMemberKey(**keys), None)
        yield CoordinatorRecord(rec.ShareGroupMemberMetadataKey(**keys), None)

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """The tombstones of a deleted group."""
        for member_id in self.members:
            yield from self.member_tombstones(member_id)
        yield CoordinatorRecord(rec.ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        yield CoordinatorRecord(rec.ShareGroupStatePartitionMetadataKey(group_id=self.group_id), None)
        yield CoordinatorRecord(rec.ShareGroupMetadataKey(group_id=self.group_id), None)

    def apply(self, record: CoordinatorRecord) -> None:
        """Apply a record of the group. The tombstone of the group's metadata is applied by `GroupShard`."""
        key, value = record.key, record.value
        match key:
            case rec.ShareGroupMetadataKey():
                assert value is not None
                self.apply_metadata(value)
            case rec.ShareGroupMemberMetadataKey():
                self.apply_member(key.member_id, value)
            case rec.ShareGroupCurrentMemberAssignmentKey():
                self.apply_current(key.member_id, value)
            case rec.ShareGroupTargetAssignmentMemberKey():
                self.apply_target(key.member_id, value)
            case rec.ShareGroupTargetAssignmentMetadataKey():
                self.apply_target_epoch(value)
            case rec.ShareGroupStatePartitionMetadataKey():
                self.apply_states(value)


def _topics(entries: Iterable[rec.TopicPartitionsInfo]) -> dict[TopicId, StateTopic]:
    return {entry.topic_id: StateTopic(entry.topic_name, frozenset(entry.partitions)) for entry in entries}


def _entries(topics: StateTopics) -> list[rec.TopicPartitionsInfo]:
    return [
        rec.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(topics[topic_id].partitions)
        )
        for topic_id in sorted_ids(topics)
    ]
