"""Machine: groups that change their protocol while they have members (KIP-848, "online migration").

upgrade    The first member with the consumer protocol joins a classic group of consumers. The group becomes a consumer
           group. Its classic members stay in the group and are served by `consumer.classic_members`.
downgrade  The last member with the consumer protocol leaves. The group with the remaining members becomes a classic
           group.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages.join_group import JoinGroupResponse
from barnabas.protocol.wire.messages.sync_group import SyncGroupResponse
from barnabas.server.coordination.group.classic import consumer_protocol
from barnabas.server.coordination.group.classic import rebalance as classic_rebalance
from barnabas.server.coordination.group.classic.group import STABLE, ClassicGroup, ClassicGroupMember
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.consumer.manager import ConsumerGroupManager
from barnabas.server.coordination.group.consumer.member import (
    ClassicProtocolMetadata,
    ConsumerGroupMember,
    Partitions,
    topic_names_of,
)
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import TopicCatalog


def may_upgrade(manager: ConsumerGroupManager, group: ClassicGroup) -> bool:
    config = manager.config
    return (
        config.group_consumer_migration_policy.may_upgrade
        and group.is_consumer_protocol
        and len(group.members) <= config.group_consumer_max_size
    )


def upgrade(manager: ConsumerGroupManager, op: WriteOperation, classic: ClassicGroup) -> ConsumerGroup:
    """Convert a classic group to a consumer group. Members keep their partitions; pending JoinGroup and SyncGroup
    requests fail with REBALANCE_IN_PROGRESS. Raises KafkaError GROUP_ID_NOT_FOUND."""
    group_id = classic.group_id
    try:
        members = [_member_from_classic(manager.catalog, classic, member) for member in classic.members.values()]
    except WireError as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade the classic group {group_id} to a consumer group: the subscription or assignment of a "
            f"member cannot be parsed ({error}).",
        ) from error
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for waiting in classic.members.values():
        classic_rebalance.complete_join_future(
            op, classic, waiting, JoinGroupResponse(error_code=again, member_id=waiting.member_id)
        )
        classic_rebalance.complete_sync_future(op, waiting, SyncGroupResponse(error_code=again))
    for member_id in (*classic.members, *classic.pending_join):
        op.cancel(("heartbeat", group_id, member_id))
    op.cancel(("join", group_id))
    op.cancel(("sync", group_id))
    manager.apply_and_write(op, *classic.tombstones())
    group = manager.table.by_id[group_id] = ConsumerGroup(group_id, manager.table.timeline)
    manager.apply_and_write(op, *(member.metadata_record(group_id) for member in members))
    manager.apply_and_write(op, group.epoch_record(classic.generation_id, 0))
    manager.apply_and_write(op, *(group.target_record(member.member_id, member.assigned) for member in members))
    manager.apply_and_write(op, group.target_epoch_record(classic.generation_id, op.now_ms))
    manager.apply_and_write(op, *(member.assignment_record(group_id) for member in members))
    for member in members:
        assert member.classic is not None
        op.schedule(("consumer-session", group_id, member.member_id), member.classic.session_timeout_ms, retry=True)
    return group


def _member_from_classic(catalog: TopicCatalog, group: ClassicGroup, member: ClassicGroupMember) -> ConsumerGroupMember:
    """The classic member as a consumer group member. Raises WireError if its metadata cannot be parsed."""
    subscription = consumer_protocol.parse_subscription(
        member.metadata(group.protocol_name) if group.protocol_name else member.protocols[0][1]
    )
    assigned = consumer_protocol.parse_assignment(member.assignment) if member.assignment else {}
    return ConsumerGroupMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        topic_names_of(subscription.topics),
        classic=ClassicProtocolMetadata(member.session_timeout_ms, tuple(member.protocols)),
        member_epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=by_id(catalog, assigned),
    )


def by_id(catalog: TopicCatalog, partitions: dict[str, list[int]]) -> Partitions:
    """The partitions by topic id instead of topic name, without deleted topics."""
    found: dict[TopicId, frozenset[int]] = {}
    for topic, numbers in partitions.items():
        view = catalog.by_name(topic)
        if view is not None and numbers:
            found[view.topic_id] = frozenset(numbers)
    return found


def by_name(catalog: TopicCatalog, partitions: Partitions) -> dict[str, list[int]]:
    """The partitions by topic name instead of topic id, without deleted topics."""
    found: dict[str, list[int]] = {}
    for topic_id, numbers in partitions.items():
        view = catalog.by_id(topic_id)
        if view is not None:
            found[view.name] = sorted(numbers)
    return found


def may_downgrade(manager: ConsumerGroupManager, group: ConsumerGroup, without: str, *, replaced: bool) -> bool:
    """Whether the group is to become a classic group when member `without` is removed, or `replaced` by a classic
    member."""
    remaining = len(group.members) - (not replaced)
    config = manager.config
    return (
        remaining > 0
        and all(m.classic is not None for m in group.members.values() if m.member_id != without)
        and config.group_consumer_migration_policy.may_downgrade
        and remaining <= config.group_max_size
    )


def downgrade(
    manager: ConsumerGroupManager, op: WriteOperation, group: ConsumerGroup, without: str | None
) -> ClassicGroup:
    """Convert a consumer group to a stable classic group, whose assignment is the target assignment. Member `without`
    is leaving and is left out."""
    group_id = group.group_id
    classic = ClassicGroup(group_id, STABLE, state_timestamp_ms=op.now_ms, generation_id=group.epoch.value)
    for member in group.members.values():
        if member.member_id == without or member.classic is None:
            continue
        classic.add(
            ClassicGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                consumer_protocol.PROTOCOL_TYPE,
                list(member.classic.protocols),
            )
        )
    classic.protocol_name = classic.select_protocol()
    classic.subscribed = classic.compute_subscribed()
    for present in classic.members.values():
        version = consumer_protocol.version_of(present.metadata(classic.protocol_name))
        target = by_name(manager.catalog, group.target_of(present.member_id))
        present.assignment = consumer_protocol.build_assignment(target, version)
    for member_id in list(group.members):
        manager.cancel_timers(op, group_id, member_id)
    manager.apply_and_write(op, *list(group.tombstones()))
    op.write(classic.record())
    manager.table.by_id[group_id] = classic
    for present in classic.members.values():
        classic_rebalance.schedule_session_timeout(op, classic, present)
    return classic
