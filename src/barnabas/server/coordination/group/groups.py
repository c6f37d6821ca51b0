"""Machine: the table of groups in one partition, and the rules for groups of any kind.

`Group` is a tagged union. Each kind of group has its own state and its own state machine in a package beside this file
(`classic`, `consumer`, `share`). The functions of this module answer what the offset APIs, DescribeGroups, ListGroups
and DeleteGroups need to know about a group of any kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.coordination.group.classic.group import COMPLETING, DEAD, EMPTY, STABLE, ClassicGroup
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.share.group import ShareGroup
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.timeline import Timeline, TimelineMap

Group = ClassicGroup | ConsumerGroup | ShareGroup


class GroupType(Enum):
    """The values are the names in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


def type_of(group: Group) -> GroupType:
    if isinstance(group, ShareGroup):
        return GroupType.SHARE
    return GroupType.CLASSIC if isinstance(group, ClassicGroup) else GroupType.CONSUMER


class GroupTable:
    """The groups of a partition by id. A group that has only offsets, without members, is a classic group."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.by_id: TimelineMap[str, Group] = TimelineMap(timeline)

    def get(self, group_id: str) -> Group | None:
        return self.by_id.get(group_id)

    def committed_get(self, group_id: str) -> Group | None:
        return self.by_id.committed_get(group_id)

    def find(self, group_id: str) -> Group:
        """The newest state of the group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.by_id.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def find_committed(self, group_id: str) -> Group:
        """The committed group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.by_id.committed_get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.by_id.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.by_id.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def share(self, group_id: str) -> ShareGroup | None:
        group = self.by_id.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def find_share(self, group_id: str) -> ShareGroup:
        """The share group. Raises KafkaError GROUP_ID_NOT_FOUND, also if the group is of another kind."""
        group = self.by_id.get(group_id)
        if not isinstance(group, ShareGroup):
            what = "not found" if group is None else "is not a share group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def new_share(self, group_id: str) -> ShareGroup:
        """Create a share group. The caller has checked that there is no group with that id."""
        group = self.by_id[group_id] = ShareGroup(group_id, self.timeline)
        return group

    def classic_or_new(self, group_id: str) -> ClassicGroup:
        """The classic group, which is created if there is no group with that id. Raises KafkaError GROUP_ID_NOT_FOUND
        if the group is of another kind."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = ClassicGroup(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def committed_groups(self) -> Iterator[Group]:
        for _, group in sorted(self.by_id.committed_items(), key=lambda item: item[0]):
            yield group


# -- rules for groups of any kind ------------------------------------------------------------------------------------


def state_name(group: Group) -> str:
    """The name of the committed state, as in ListGroups."""
    return group.state.value if isinstance(group, ClassicGroup) else group.committed_state().value


def protocol_type(group: Group) -> str:
    if isinstance(group, ShareGroup):
        return "share"
    return (group.protocol_type or "") if isinstance(group, ClassicGroup) else "consumer"


def is_empty(group: Group) -> bool:
    return group.is_empty


def is_subscribed_to(group: Group, topic: str) -> bool:
    return group.is_subscribed_to(topic)


def tombstones(group: Group) -> Iterator[CoordinatorRecord]:
    """The tombstones that delete the group from the log, without those of its offsets."""
    return group.tombstones()


def check_offset_commit(
    group: Group,
    member_id: str,
    instance_id: str | None,
    generation: int,
    *,
    transactional: bool,
    api_version: int,
) -> None:
    """Check that this member may commit offsets in this generation or member epoch. Raises KafkaError."""
    if isinstance(group, ConsumerGroup):
        group.check_offset_commit(member_id, generation, transactional=transactional, api_version=api_version)
        return
    if isinstance(group, ShareGroup):
        raise _no_offsets(group)
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if generation < 0 and group.state is EMPTY:
        return  # a consumer that assigns partitions manually, or an administrator
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is COMPLETING:
        # The new generation may assign this member's partitions to another member (KAFKA-9752).
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def check_offset_fetch(group: Group, member_id: str | None, member_epoch: int, *, committed: bool) -> None:
    """Check that this member may fetch offsets. Raises KafkaError; GROUP_ID_NOT_FOUND means that there are no
    offsets."""
    if isinstance(group, ConsumerGroup):
        group.check_offset_fetch(member_id, member_epoch, committed=committed)
    elif isinstance(group, ShareGroup):
        raise _no_offsets(group)
    elif group.state is DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)


def check_offset_delete(group: Group) -> None:
    """Check that offsets of the group may be deleted. Raises KafkaError NON_EMPTY_GROUP for a classic group with
    members whose protocol is not "consumer", because their subscriptions are unknown."""
    if isinstance(group, ConsumerGroup):
        return
    if isinstance(group, ShareGroup):
        raise _no_offsets(group)
    if group.state is DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not EMPTY and not group.is_consumer_protocol:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def _no_offsets(group: ShareGroup) -> KafkaError:
    """The error of an offset API for a share group, whose offsets the share coordinator stores; they have APIs of their
    own, such as DescribeShareGroupOffsets."""
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a share group, which has no committed offsets."
    )


def check_delete(group: Group) -> None:
    """Check that the group may be deleted. Raises KafkaError NON_EMPTY_GROUP, or GROUP_ID_NOT_FOUND for a dead
    group."""
    if isinstance(group, ClassicGroup) and group.state is DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def expiry_base_ms(group: Group, commit_timestamp_ms: int) -> int | None:
    """The time at which the retention of an offset begins; None if the offset does not expire in the group's state. The
    caller must keep the offsets of topics to which the group is subscribed.

    The rules are those of KIP-211. In an empty classic group, retention begins when the group became empty. In a
    classic group without a protocol (only offsets), in a stable classic group of consumers with known subscriptions,
    and in a consumer group, retention begins with the commit. Any other classic group keeps its offsets.
    """
    if isinstance(group, ConsumerGroup | ShareGroup):
        return commit_timestamp_ms
    if group.protocol_type is None:
        return commit_timestamp_ms
    if group.state is EMPTY:
        return commit_timestamp_ms if group.state_timestamp_ms is None else group.state_timestamp_ms
    if group.is_consumer_protocol and group.subscribed is not None and group.state is STABLE:
        return commit_timestamp_ms
    return None


def is_removable(group: Group) -> bool:
    """Whether the group is deleted when its last offset has expired. A share group is only deleted by DeleteGroups."""
    if isinstance(group, ShareGroup):
        return False
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_join)
