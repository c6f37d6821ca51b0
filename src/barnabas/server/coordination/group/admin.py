"""Machine: the APIs with which an administrator lists, describes and deletes groups.

DescribeGroups serves classic groups, ConsumerGroupDescribe those of KIP-848, ShareGroupDescribe those of KIP-932;
ListGroups and DeleteGroups serve groups of any kind. All but DeleteGroups read the committed state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.protocol.wire.messages import consumer_group_describe, share_group_describe
from barnabas.protocol.wire.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.wire.messages.list_groups import ListedGroup
from barnabas.server.coordination.group import groups
from barnabas.server.coordination.group.classic.group import DEAD, STABLE, ClassicGroup
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Partitions
from barnabas.server.coordination.group.groups import Group, GroupTable
from barnabas.server.coordination.group.offsets import Offsets
from barnabas.server.coordination.group.share.group import ShareGroup, ShareGroupMember
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import TopicCatalog

NOT_FOUND_FROM: Final = 6
"""The DescribeGroups version that first returns GROUP_ID_NOT_FOUND for an unknown group (KIP-1043). Earlier versions
return the state "Dead" without an error."""

MEMBER_TYPE_CLASSIC: Final = 0
MEMBER_TYPE_CONSUMER: Final = 1


class GroupAdmin:
    """The administrative APIs of one shard's groups."""

    def __init__(
        self, table: GroupTable, offsets: Offsets, catalog: TopicCatalog, consumer_assignor: str, share_assignor: str
    ) -> None:
        self.catalog = catalog
        self._table = table
        self._offsets = offsets
        self._consumer_assignor = consumer_assignor
        """The assignor of a consumer group in which no member prefers one."""
        self._share_assignor = share_assignor

    # -- describe ------------------------------------------------------------------------------------------------

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """DescribeGroups for one classic group. Metadata and assignments are shown only while the group is stable,
        because during a rebalance they belong to no generation."""
        group = self._table.committed_get(group_id)
        if not isinstance(group, ClassicGroup):
            described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
            if api_version >= NOT_FOUND_FROM:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = _not_found(group_id, group, "a classic group")
            return described
        stable = group.state is STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    member_metadata=m.metadata(group.protocol_name) if stable else b"",
                    member_assignment=m.assignment if stable else b"",
                )
                for m in group.members.values()
            ],
        )

    def describe_consumer_group(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """ConsumerGroupDescribe for one group."""
        group = self._table.committed_get(group_id)
        if not isinstance(group, ConsumerGroup):
            return consumer_group_describe.DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=_not_found(group_id, group, "a consumer group"),
            )
        members = group.members.committed()
        return consumer_group_describe.DescribedGroup(
            group_id=group_id,
            group_state=group.committed_state().value,
            group_epoch=group.epoch.committed,
            assignment_epoch=group.assignment_epoch.committed,
            assignor_name=group.preferred_assignor(self._consumer_assignor),
            members=[
                self._consumer_member(members[member_id], group.target.committed_get(member_id) or NO_PARTITIONS)
                for member_id in sorted(members)
            ],
        )

    def _consumer_member(self, member: ConsumerGroupMember, target: Partitions) -> consumer_group_describe.Member:
        return consumer_group_describe.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
            subscribed_topic_regex=member.topic_regex or None,
            assignment=self._consumer_assignment(member.assigned),
            target_assignment=self._consumer_assignment(target),
            member_type=MEMBER_TYPE_CONSUMER if member.classic is None else MEMBER_TYPE_CLASSIC,
        )

    def _consumer_assignment(self, partitions: Partitions) -> consumer_group_describe.Assignment:
        return consumer_group_describe.Assignment(
            topic_partitions=[
                consumer_group_describe.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
                for topic_id, name, numbers in self._existing(partitions)
            ]
        )

    def describe_share_group(self, group_id: str) -> share_group_describe.DescribedGroup:
        """ShareGroupDescribe for one group."""
        group = self._table.committed_get(group_id)
        if not isinstance(group, ShareGroup):
            return share_group_describe.DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=_not_found(group_id, group, "a share group"),
            )
        members = group.members.committed()
        return share_group_describe.DescribedGroup(
            group_id=group_id,
            group_state=group.committed_state().value,
            group_epoch=group.epoch.committed,
            assignment_epoch=group.assignment_epoch.committed,
            assignor_name=self._share_assignor,
            members=[self._share_member(members[member_id]) for member_id in sorted(members)],
        )

    def _share_member(self, member: ShareGroupMember) -> share_group_describe.Member:
        return share_group_describe.Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topic_names),
            assignment=share_group_describe.Assignment(
                topic_partitions=[
                    share_group_describe.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
                    for topic_id, name, numbers in self._existing(member.assigned)
                ]
            ),
        )

    def _existing(self, partitions: Partitions) -> Iterator[tuple[TopicId, str, list[int]]]:
        """Id, name and sorted partitions of each topic. Deleted topics are left out: their names are unknown."""
        for topic_id in sorted(partitions):
            topic = self.catalog.by_id(topic_id)
            if topic is not None:
                yield topic_id, topic.name, sorted(partitions[topic_id])

    # -- list and delete -----------------------------------------------------------------------------------------

    def list_groups(self, states: Set[str], types: Set[str]) -> list[ListedGroup]:
        """The groups in one of these states and of one of these types, in lower case; an empty filter admits all."""
        listed = []
        for group in self._table.committed_groups():
            state, kind = groups.state_name(group), groups.type_of(group).value
            if (states and state.lower() not in states) or (types and kind.lower() not in types):
                continue
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=groups.protocol_type(group),
                    group_state=state,
                    group_type=kind,
                )
            )
        return listed

    def delete_groups(self, op: WriteOperation, group_ids: Collection[str]) -> list[DeletableGroupResult]:
        """Delete empty groups with their offsets. Each group has its own result."""
        results = []
        for group_id in group_ids:
            result = DeletableGroupResult(group_id=group_id)
            results.append(result)
            try:
                group = self._table.find(group_id)
                groups.check_delete(group)
            except KafkaError as error:
                result.error_code = error.code
                continue
            self._offsets.delete_all(op, group_id)
            op.write(*groups.tombstones(group))
        return results


def _not_found(group_id: str, group: Group | None, expected: str) -> str:
    return f"Group {group_id} not found." if group is None else f"Group {group_id} is not {expected}."
