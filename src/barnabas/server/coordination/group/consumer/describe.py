"""Machine: ConsumerGroupDescribe (KIP-848). It sees what is committed."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.consumer.member import NO_PARTITIONS, ConsumerMember, Partitions
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.ports import TopicCatalog


def describe(table: GroupTable, catalog: TopicCatalog, group_id: str, default_assignor: str) -> DescribedGroup:
    group = table.committed_get(group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} {what}."
        )
    members = group.members.committed()
    return DescribedGroup(
        group_id=group_id,
        group_state=group.committed_state().value,
        group_epoch=group.epoch.committed,
        assignment_epoch=group.assignment_epoch.committed,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[
            _member(catalog, members[member_id], group.target.committed_get(member_id) or NO_PARTITIONS)
            for member_id in sorted(members)
        ],
    )


def _member(catalog: TopicCatalog, member: ConsumerMember, target: Partitions) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex or None,
        assignment=_assignment(catalog, member.assigned),
        target_assignment=_assignment(catalog, target),
        member_type=1 if member.classic is None else 0,
    )


def _assignment(catalog: TopicCatalog, partitions: Partitions) -> Assignment:
    """Topics that are gone have no name to show, and are left out."""
    shown = []
    for topic_id in sorted(partitions):
        view = catalog.by_id(topic_id)
        if view is not None:
            shown.append(
                TopicPartitions(topic_id=topic_id, topic_name=view.name, partitions=sorted(partitions[topic_id]))
            )
    return Assignment(topic_partitions=shown)
