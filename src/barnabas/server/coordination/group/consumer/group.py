"""Machine: the state of one consumer group (KIP-848), which results from replaying its records, and queries about it.

Three epochs show the progress of a change:

    group epoch        incremented when the membership, a subscription or the subscribed topics change
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch to which the member has been reconciled

    Empty        the group has no members
    Assigning    the group epoch is higher than the assignment epoch
    Reconciling  some members do not have their target assignment yet
    Stable       all members have their target assignment

The state is stored in timeline maps: reads see the committed state, and changes that cannot be appended are rolled
back.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.server.coordination.group.consumer.member import (
    LEAVING_EPOCH,
    NO_PARTITIONS,
    ConsumerGroupMember,
    Partitions,
    classic_protocol_metadata,
    pairs,
    partitions_of,
    state_of,
    target_entries,
    topic_names_of,
)
from barnabas.server.coordination.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.timeline import Timeline, TimelineCell, TimelineMap


class ConsumerState(Enum):
    """The values are the names in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(Struct, frozen=True):
    """The topics that a subscribed regular expression matched, with the metadata version and the time of resolution."""

    topics: tuple[str, ...] = ()
    version: int = 0
    timestamp_ms: int = 0


class EpochBump(Struct, frozen=True):
    """The reason and the time of the last increment of a group epoch."""

    reason: str
    at_ms: int


NO_EPOCH_BUMP: Final = EpochBump("", -1)
"""The group epoch has not been incremented since this coordinator loaded the group."""


class ConsumerGroup:
    """A consumer group. Only the `apply_` methods change the replicated state."""

    def __init__(self, group_id: str, timeline: Timeline) -> None:
        self.group_id = group_id
        self.epoch = TimelineCell(timeline, 0)
        self.metadata_hash = TimelineCell(timeline, 0)
        self.assignment_epoch = TimelineCell(timeline, 0)
        self.members: TimelineMap[str, ConsumerGroupMember] = TimelineMap(timeline)
        self.static_members: TimelineMap[str, str] = TimelineMap(timeline)
        self.target: TimelineMap[str, Partitions] = TimelineMap(timeline)
        self.owners: TimelineMap[tuple[TopicId, int], int] = TimelineMap(timeline)
        """The member epoch of the owner of each partition. A partition without an entry is free."""
        self.regexes: TimelineMap[str, ResolvedRegex] = TimelineMap(timeline)
        self.expressions: TimelineMap[str, int] = TimelineMap(timeline)
        """The number of members that subscribe to each regular expression, resolved or not."""
        self._subscribed: TimelineCell[frozenset[str] | None] = TimelineCell(timeline, frozenset())
        """The topics of all subscriptions; None if a subscription or an expression has changed since they were united.
        Not in the log."""
        self.expressions_version = TimelineCell(timeline, 0)
        """The version of the topic metadata for which the expressions were last resolved. Not in the log."""
        self.assigned_at_ms = TimelineCell(timeline, 0)
        self.resolved_topics_version = TimelineCell(timeline, 0)
        """The version of the topic metadata for which the subscribed topics were last compared. Not in the log."""
        self.last_epoch_bump = TimelineCell(timeline, NO_EPOCH_BUMP)
        """The last increment of the group epoch, for ExplainGroup. Not in the log."""

    # -- queries -------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not len(self.members)

    def state(self) -> ConsumerState:
        return _state(self.epoch.value, self.assignment_epoch.value, list(self.members.values()))

    def committed_state(self) -> ConsumerState:
        members = list(self.members.committed().values())
        return _state(self.epoch.committed, self.assignment_epoch.committed, members)

    def find_member(self, member_id: str) -> ConsumerGroupMember:
        """The member with this id. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id) or NO_PARTITIONS

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The topics to which the member subscribes, by name and by regular expression."""
        topics = frozenset(member.topic_names)
        if member.topic_regex:
            resolved = self.regexes.get(member.topic_regex)
            if resolved is not None:
                topics |= frozenset(resolved.topics)
        return topics

    def last_resolution_ms(self) -> int | None:
        """The time at which the expressions were last resolved; None if none is resolved."""
        return max((resolved.timestamp_ms for resolved in self.regexes.values()), default=None)

    def subscribed_topics(self) -> frozenset[str]:
        """The topics of all subscriptions. Usually the same object again while members join."""
        topics = self._subscribed.value
        if topics is None:
            subscriptions = {member.topic_names for member in self.members.values()}
            subscriptions.update(resolved.topics for resolved in self.regexes.values())
            topics = self._subscribed.value = frozenset().union(*subscriptions)
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values()) or any(
            topic in resolved.topics for resolved in self.regexes.values()
        )

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members prefer. In a tie, the preference that was first in the order of members
        wins."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else default

    def waits_for_release(self, member: ConsumerGroupMember) -> bool:
        """Whether a partition of the member's target assignment still has another owner."""
        for topic_id, partition in pairs(self.target_of(member.member_id)):
            if partition not in member.assigned.get(topic_id, ()) and (topic_id, partition) in self.owners:
                return True
        return False

    def check_offset_commit(self, member_id: str, epoch: int, *, transactional: bool, api_version: int) -> None:
        """Check that the member may commit offsets in this member epoch. Raises KafkaError."""
        if epoch < 0 and self.is_empty:
            return
        member = self.find_member(member_id)
        if not transactional and member.classic is None and api_version < 9:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "Members of consumer groups must use OffsetCommit version 9 or newer."
            )
        _check_epoch(member, epoch)

    def check_offset_fetch(self, member_id: str | None, epoch: int, *, committed: bool) -> None:
        """Check that the member may fetch offsets in this member epoch. Raises KafkaError."""
        if member_id is None and epoch < 0:
            return
        member = self.members.committed_get(member_id or "") if committed else self.members.get(member_id or "")
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        _check_epoch(member, epoch)

    # -- replay --------------------------------------------------------------------------------------------------

    def apply_metadata(self, value: ConsumerGroupMetadataValue) -> None:
        self.epoch.value = value.epoch
        self.metadata_hash.value = value.metadata_hash

    def apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        before = self.members.get(member_id)
        if value is None:
            if before is not None:
                self._release(before)
                self._count_expression(before.topic_regex, -1)
                self._subscribed.value = None
                self.members.pop(member_id)
                if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                    self.static_members.pop(before.instance_id)
            return
        member = replace(
            before or ConsumerGroupMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topic_names=topic_names_of(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            server_assignor=value.server_assignor,
            classic=classic_protocol_metadata(value),
        )
        if before is not None:
            self._count_expression(before.topic_regex, -1)
        self._count_expression(member.topic_regex, 1)
        self._count_topics(() if before is None else before.topic_names, member.topic_names)
        self.members[member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _count_expression(self, pattern: str | None, change: int) -> None:
        if pattern:
            count = (self.expressions.get(pattern) or 0) + change
            if count:
                self.expressions[pattern] = count
            else:
                self.expressions.pop(pattern)

    def _count_topics(self, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """A member subscribed to the topics `before`, and subscribes to the topics `now`."""
        subscribed = self._subscribed.value
        if before == now or subscribed is None:
            return
        if before:
            self._subscribed.value = None
        elif not subscribed.issuperset(now):
            self._subscribed.value = subscribed.union(now)

    def apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        before = self.members.get(member_id)
        if value is None:
            if before is not None:
                self._release(before)
                self.members[member_id] = replace(
                    before,
                    member_epoch=LEAVING_EPOCH,
                    previous_epoch=LEAVING_EPOCH,
                    assigned=NO_PARTITIONS,
                    revoking=NO_PARTITIONS,
                )
            return
        if before is not None:
            self._release(before)
        member = replace(
            before or ConsumerGroupMember(member_id),
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=state_of(value.state),
            assigned=partitions_of(value.assigned_partitions),
            revoking=partitions_of(value.partitions_pending_revocation),
        )
        self.members[member_id] = member
        for key in (*pairs(member.assigned), *pairs(member.revoking)):
            self.owners[key] = member.member_epoch

    def _release(self, member: ConsumerGroupMember) -> None:
        for key in (*pairs(member.assigned), *pairs(member.revoking)):
            # During replay another member may own the partition, because compaction has removed records in between.
            if self.owners.get(key) == member.member_epoch:
                self.owners.pop(key)

    def apply_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.target.pop(member_id)
        else:
            self.target[member_id] = partitions_of(value.topic_partitions)

    def apply_target_epoch(self, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch.value = -1 if value is None else value.assignment_epoch
        self.assigned_at_ms.value = 0 if value is None else value.assignment_timestamp

    def apply_regex(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        self._subscribed.value = None
        if value is None:
            self.regexes.pop(regex)
        else:
            self.regexes[regex] = ResolvedRegex(tuple(sorted(value.topics)), value.version, value.timestamp)

    # -- records -------------------------------------------------------------------------------------------------

    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=self.group_id), value)

    def target_record(self, member_id: str, partitions: Partitions) -> CoordinatorRecord:
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id)
        value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=target_entries(partitions))
        return CoordinatorRecord(key, value)

    def target_epoch_record(self, epoch: int, now_ms: int) -> CoordinatorRecord:
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id)
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        return CoordinatorRecord(key, value)

    def regex_record(self, regex: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
        key = ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
        if resolved is None:
            return CoordinatorRecord(key, None)
        value = ConsumerGroupRegularExpressionValue(
            topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
        return CoordinatorRecord(key, value)

    def member_tombstones(self, member_id: str) -> Iterator[CoordinatorRecord]:
        """The tombstones of a removed member: its current assignment, its target assignment, its metadata, in this
        order."""
        keys = {"group_id": self.group_id, "member_id": member_id}
        yield CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(**keys), None)
        yield CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(**keys), None)
        yield CoordinatorRecord(ConsumerGroupMemberMetadataKey(**keys), None)

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """The tombstones of a deleted group."""
        for member_id in self.members:
            yield from self.member_tombstones(member_id)
        for regex in self.regexes:
            yield self.regex_record(regex, None)
        yield CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        yield CoordinatorRecord(ConsumerGroupMetadataKey(group_id=self.group_id), None)


def _state(epoch: int, assignment_epoch: int, members: list[ConsumerGroupMember]) -> ConsumerState:
    if not members:
        return ConsumerState.EMPTY
    if epoch > assignment_epoch:
        return ConsumerState.ASSIGNING
    if all(member.is_reconciled_to(assignment_epoch) for member in members):
        return ConsumerState.STABLE
    return ConsumerState.RECONCILING


def _check_epoch(member: ConsumerGroupMember, epoch: int) -> None:
    if epoch == member.member_epoch:
        return
    if member.classic is not None:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {epoch} does not match the expected member epoch {member.member_epoch}.",
        )
    raise KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {epoch} does not match the expected member epoch {member.member_epoch}.",
    )
