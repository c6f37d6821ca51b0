"""Machine: the table of groups in one partition, and the rules that hold for groups of any kind.

A group is a tagged union. Each kind has a state of its own, and its own machine, in a folder beside this file
(`classic`, `consumer`, `share`); what offsets, DescribeGroups, ListGroups and DeleteGroups need of it is asked here.
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
    """Names as ListGroups gives them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


def type_of(group: Group) -> GroupType:
    if isinstance(group, ShareGroup):
        return GroupType.SHARE
    return GroupType.CLASSIC if isinstance(group, ClassicGroup) else GroupType.CONSUMER


class GroupTable:
    """Groups by id. A group may exist for its offsets alone."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.by_id: TimelineMap[str, Group] = TimelineMap(timeline)

    def get(self, group_id: str) -> Group | None:
        return self.by_id.get(group_id)

    def committed_get(self, group_id: str) -> Group | None:
        return self.by_id.committed_get(group_id)

    def find(self, group_id: str) -> Group:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.by_id.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def find_committed(self, group_id: str) -> Group:
        """As `find`, of what is committed."""
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
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.by_id.get(group_id)
        if not isinstance(group, ShareGroup):
            what = "not found" if group is None else "is not a share group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def classic_or_new(self, group_id: str) -> ClassicGroup:
        """The classic group, made if there is no group of that id. Raises GROUP_ID_NOT_FOUND for another kind."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = ClassicGroup(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def committed_groups(self) -> Iterator[Group]:
        for _, group in sorted(self.by_id.committed_items(), key=lambda item: item[0]):
            yield group


# -- what all kinds of groups are asked ------------------------------------------------------------------------------


def state_name(group: Group) -> str:
    """The committed state, by the name that people know it by."""
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
    """Everything that must be written to make the log forget the group (its offsets apart)."""
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
    """Whether this member, in this generation or epoch, may commit. Raises KafkaError."""
    if isinstance(group, ConsumerGroup):
        group.check_offset_commit(member_id, generation, transactional=transactional, api_version=api_version)
        return
    if isinstance(group, ShareGroup):
        raise _no_offsets(group)
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if generation < 0 and group.state is EMPTY:
        return  # somebody who assigns partitions by hand, or an administrator
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.state is COMPLETING:
        # Its partitions may be someone else's by now; until it knows, it must not commit (KAFKA-9752).
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def check_offset_fetch(group: Group, member_id: str | None, member_epoch: int, *, committed: bool) -> None:
    """Raises KafkaError; GROUP_ID_NOT_FOUND means: there are no offsets."""
    if isinstance(group, ConsumerGroup):
        group.check_offset_fetch(member_id, member_epoch, committed=committed)
    elif isinstance(group, ShareGroup):
        raise _no_offsets(group)
    elif group.state is DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)


def check_offset_delete(group: Group) -> None:
    """Raises KafkaError: only consumers say what they subscribe to, so others must be gone first."""
    if isinstance(group, ConsumerGroup):
        return
    if isinstance(group, ShareGroup):
        raise _no_offsets(group)
    if group.state is DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not EMPTY and not group.is_consumer_protocol:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def _no_offsets(group: ShareGroup) -> KafkaError:
    """Where a share group stands is the share coordinator's business (AlterShareGroupOffsets ...)."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a share group: it commits no offsets.")


def check_delete(group: Group) -> None:
    """Raises KafkaError NON_EMPTY_GROUP."""
    if isinstance(group, ClassicGroup) and group.state is DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def expiry_base_ms(group: Group, commit_timestamp_ms: int) -> int | None:
    """When an offset's retention begins to run; None: it does not, while the group is like this (KIP-211).

    A group with members keeps its offsets, but stable consumers do not keep those of topics they no longer
    subscribe to. An empty group's run from the day it became empty; those of mere names, from their commit.
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
    """Without offsets, nothing is left of it; but a share group has more than those, and stays until it is deleted."""
    if isinstance(group, ShareGroup):
        return False
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_join)
