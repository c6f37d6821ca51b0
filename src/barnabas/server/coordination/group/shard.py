"""Machine: the state machine of one partition of `__consumer_offsets` (Kafka's GroupCoordinatorShard).

`GroupShard` implements the runtime's `CoordinatorShard`. It selects the module that handles a request, a record or a
timer, by the kind of group, record or timer. The decisions are made in those modules.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_ID
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.group import migration
from barnabas.server.coordination.group import records as rec
from barnabas.server.coordination.group.admin import GroupAdmin
from barnabas.server.coordination.group.classic import group as classic_group
from barnabas.server.coordination.group.classic import join as classic_join
from barnabas.server.coordination.group.classic import members as classic_members
from barnabas.server.coordination.group.classic import rebalance as classic_rebalance
from barnabas.server.coordination.group.classic.group import ClassicGroup
from barnabas.server.coordination.group.config import GroupConfigs, GroupCoordinatorConfig
from barnabas.server.coordination.group.consumer import classic_members as classic_in_consumer
from barnabas.server.coordination.group.consumer.expressions import resolve_expressions
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.consumer.manager import FENCE_REASONS, LEFT, ConsumerGroupManager
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.offset_store import CommittedOffsets
from barnabas.server.coordination.group.offsets import Offsets
from barnabas.server.coordination.group.share.group import ShareGroup
from barnabas.server.coordination.group.share.manager import ShareGroupManager
from barnabas.server.coordination.group.share.offsets import ShareGroupOffsets
from barnabas.server.coordination.group.share.records import (
    SHARE_KINDS,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from barnabas.server.coordination.log_format import LogFormat
from barnabas.server.coordination.operation import DEFERRED, CoordinatorRecord, Deferred, TimerKey, WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext, ProducerIdAndEpoch, TopicCatalog
from barnabas.server.coordination.timeline import Timeline

FORMAT = LogFormat((*rec.GROUP_KINDS, *SHARE_KINDS))

_SHARE_KEYS = (
    ShareGroupMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)

EXPIRE_TIMER: TimerKey = ("expire",)


class GroupShard:
    """The groups and offsets of one partition."""

    log_format = FORMAT

    def __init__(
        self, config: GroupCoordinatorConfig, group_configs: GroupConfigs, topics: TopicCatalog, timeline: Timeline
    ) -> None:
        self.config = config
        self.group_configs = group_configs
        self.topics = topics
        self.table = GroupTable(timeline)
        self.store = CommittedOffsets(timeline)
        self.offsets = Offsets(config, self.table, self.store)
        self.consumer_groups = ConsumerGroupManager(
            config, group_configs, self.table, topics, lambda record: self.apply(record, -1, NO_PRODUCER_ID)
        )
        self.share_groups = ShareGroupManager(
            config, group_configs, self.table, topics, lambda record: self.apply(record, -1, NO_PRODUCER_ID)
        )
        self.share_offsets = ShareGroupOffsets(self.share_groups)
        self.admin = GroupAdmin(
            self.table, self.offsets, topics, self.consumer_groups.default_assignor, self.share_groups.assignor.name
        )

    # -- classic groups ------------------------------------------------------------------------------------------

    def join_group(
        self, op: WriteOperation, ctx: GroupRequestContext, request: JoinGroupRequest
    ) -> JoinGroupResponse | Deferred:
        group_id = request.group_id
        group = self.table.get(group_id)
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                return classic_in_consumer.join(self.consumer_groups, op, group, ctx, request)
            self.consumer_groups.apply_and_write(
                op, *list(group.tombstones())
            )  # an empty group changes its protocol without a migration
            group = None
        if isinstance(group, ShareGroup):
            return classic_join.error_response(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if group is None:
            return self._join_first(op, ctx, request)
        return classic_join.join(self.config, op, group, ctx, request)

    def _join_first(
        self, op: WriteOperation, ctx: GroupRequestContext, request: JoinGroupRequest
    ) -> JoinGroupResponse | Deferred:
        if request.member_id:
            return classic_join.error_response(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        future = op.response_future
        group = self.table.classic_or_new(request.group_id)
        response = classic_join.join(self.config, op, group, ctx, request)
        op.write(group.empty_record())
        op.replay_records = False

        def stored(op: WriteOperation, code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                op.complete(future, classic_join.error_response(error_for_client(code)))

        if response is DEFERRED:
            op.append_callback = stored
        return response

    def sync_group(
        self, op: WriteOperation, ctx: GroupRequestContext, request: SyncGroupRequest
    ) -> SyncGroupResponse | Deferred:
        group = self.table.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return classic_members.sync(self.config, op, group, request)
        if isinstance(group, ConsumerGroup):
            return classic_in_consumer.sync(self.consumer_groups, op, group, request)
        return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    def heartbeat(self, op: WriteOperation, ctx: GroupRequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self.table.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return classic_members.heartbeat(op, group, request)
        if isinstance(group, ConsumerGroup):
            return classic_in_consumer.heartbeat(op, group, request)
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def leave_group(
        self, op: WriteOperation, ctx: GroupRequestContext, request: LeaveGroupRequest
    ) -> LeaveGroupResponse:
        group = self.table.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return classic_members.leave(self.config, op, group, request)
        if isinstance(group, ConsumerGroup):
            return classic_in_consumer.leave(self.consumer_groups, op, group, request)
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # -- consumer groups -----------------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self, op: WriteOperation, ctx: GroupRequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        leaving = self.consumer_groups.check(ctx, request)
        joining = request.member_epoch == 0
        group = self.consumer_groups.find_or_new(op, request.group_id, joining=joining)
        if isinstance(group, ClassicGroup):
            if not migration.may_upgrade(self.consumer_groups, group):
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
            group = migration.upgrade(self.consumer_groups, op, group)
        if not leaving:
            return self.consumer_groups.heartbeat(op, ctx, group, request)
        member, response = self.consumer_groups.leave(op, group, request)
        if member is not None:
            self._fence(op, group, member.member_id, LEFT)
        return response

    def _fence(self, op: WriteOperation, group: ConsumerGroup, member_id: str, why: str) -> None:
        """Remove a member; `why` completes the sentence "member ... `why`". If all remaining members use the classic
        protocol, the group becomes a classic group."""
        if not migration.may_downgrade(self.consumer_groups, group, member_id, replaced=False):
            self.consumer_groups.remove(op, group, member_id, why)
            return
        classic = migration.downgrade(self.consumer_groups, op, group, member_id)
        reason = f"the last member of the new protocol, {member_id}, {why}"
        classic_rebalance.prepare_rebalance(self.config, op, classic, reason)

    # -- CoordinatorShard ----------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key, value = record.key, record.value
        if isinstance(key, rec.OffsetCommitKey):
            if value is not None and self.table.get(key.group) is None:
                self.table.by_id[key.group] = ClassicGroup(key.group)  # a group that has only offsets
            self.store.apply(key, value, offset, producer_id)
        elif isinstance(key, rec.GroupMetadataKey):
            if value is None:
                self.table.by_id.pop(key.group)
            else:
                self.table.by_id[key.group] = classic_group.from_record(key.group, value)
        elif isinstance(key, rec.ConsumerGroupMetadataKey):
            if value is None:
                self.table.by_id.pop(key.group_id)
            else:
                self._consumer_group(key.group_id).apply_metadata(value)
        elif isinstance(
            key,
            rec.ConsumerGroupMemberMetadataKey
            | rec.ConsumerGroupCurrentMemberAssignmentKey
            | rec.ConsumerGroupTargetAssignmentMemberKey
            | rec.ConsumerGroupTargetAssignmentMetadataKey
            | rec.ConsumerGroupRegularExpressionKey,
        ):
            group = self.table.consumer(key.group_id)
            if group is None:
                if value is None:
                    return  # a tombstone for a group that is already deleted
                group = self._consumer_group(key.group_id)
            _apply_to_consumer_group(group, record)
        elif isinstance(key, _SHARE_KEYS):
            self._apply_to_share_group(key.group_id, record)

    def _apply_to_share_group(self, group_id: str, record: CoordinatorRecord) -> None:
        group = self.table.share(group_id)
        if isinstance(record.key, ShareGroupMetadataKey) and record.value is None:
            if group is not None:
                self.table.by_id.pop(group_id)
            return
        if group is None:
            if record.value is None:
                return  # a tombstone for a group that is already deleted
            group = self.table.by_id[group_id] = ShareGroup(group_id, self.table.timeline)
        group.apply(record)

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        """The consumer group of a record. A classic group that has only offsets is replaced by a consumer group."""
        group = self.table.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.table.by_id[group_id] = ConsumerGroup(group_id, self.table.timeline)
        return group

    def apply_marker(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        self.store.apply_marker(producer.producer_id, committed=committed)

    def on_loaded(self, op: WriteOperation) -> None:
        op.schedule(EXPIRE_TIMER, self.config.offsets_retention_check_interval_ms, retry=True)
        for group_id in sorted(self.table.by_id):
            group = self.table.by_id[group_id]
            if isinstance(group, ClassicGroup):
                self._on_classic_loaded(op, group)
            elif isinstance(group, ShareGroup):
                self.share_groups.on_loaded(op, group)
            else:
                self.consumer_groups.on_loaded(op, group)

    def _on_classic_loaded(self, op: WriteOperation, group: ClassicGroup) -> None:
        """Give each member one session timeout to find the new coordinator."""
        for member in group.members.values():
            classic_rebalance.schedule_session_timeout(op, group, member)
        if len(group.members) > self.config.group_max_size:
            classic_rebalance.prepare_rebalance(self.config, op, group, "the group is larger than group.max.size")

    def on_timer(self, op: WriteOperation, key: TimerKey) -> None:
        match key:
            case ("expire",):
                self.offsets.expire(op)
                op.schedule(EXPIRE_TIMER, self.config.offsets_retention_check_interval_ms, retry=True)
            case ("heartbeat", group_id, member_id):
                group = self.table.classic(group_id)
                if group is not None:
                    classic_rebalance.on_heartbeat_timer(self.config, op, group, member_id)
            case ("join", group_id):
                group = self.table.classic(group_id)
                if group is not None:
                    classic_rebalance.on_join_timer(self.config, op, group)
            case ("sync", group_id):
                group = self.table.classic(group_id)
                if group is not None:
                    classic_rebalance.on_sync_timer(self.config, op, group)
            case ("consumer-assign", group_id):
                consumers = self.table.consumer(group_id)
                if consumers is not None and not consumers.is_empty:
                    self.consumer_groups.assign(op, consumers)
            case ("consumer-regex", group_id):
                consumers = self.table.consumer(group_id)
                if consumers is not None:
                    resolve_expressions(self.consumer_groups, op, consumers)
            case ("share-assign", group_id):
                shares = self.table.share(group_id)
                if shares is not None and not shares.is_empty:
                    self.share_groups.assign(op, shares)
            case ("share-session", group_id, member_id):
                shares = self.table.share(group_id)
                if shares is not None and member_id in shares.members:
                    self.share_groups.remove(op, shares, member_id)
            case (
                "consumer-session" | "consumer-rebalance" | "consumer-join" | "consumer-sync" as kind,
                group_id,
                member_id,
            ):
                consumers = self.table.consumer(group_id)
                if consumers is not None and member_id in consumers.members:
                    self._fence(op, consumers, member_id, FENCE_REASONS[kind])

    def on_unloaded(self, op: WriteOperation) -> None:
        code = ErrorCode.NOT_COORDINATOR
        for group in self.table.by_id.values():
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                classic_rebalance.complete_join_future(op, group, member, JoinGroupResponse(error_code=code))
                classic_rebalance.complete_sync_future(op, member, SyncGroupResponse(error_code=code))

    def regexes_of(self, group_id: str) -> set[str]:
        """The regular expressions of the group's members, if the topics have changed since the last heartbeat."""
        group = self.table.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return set()
        is_current = group.resolved_topics_version.value == self.consumer_groups.topics_version
        if is_current and group_id not in self.consumer_groups.unprepared:
            return set()
        return set(group.expressions)

    def on_topics_changed(
        self, op: WriteOperation, topics: TopicCatalog, deleted: frozenset[str], *, created: bool
    ) -> None:
        """A new metadata image: compare subscriptions again, and delete the offsets of deleted topics. `created` is
        true if there are new topics."""
        before, self.topics = self.topics, topics
        self.consumer_groups.catalog = self.share_groups.catalog = self.admin.catalog = topics
        self.consumer_groups.topics_version += 1
        if created:
            self.consumer_groups.created_version = self.consumer_groups.topics_version
        self.share_groups.topics_version += 1
        if deleted:
            gone = [view.topic_id for name in sorted(deleted) if (view := before.by_name(name)) is not None]
            self.share_groups.on_topics_deleted(op, gone)
            self.offsets.on_topics_deleted(op, sorted(deleted))


def _apply_to_consumer_group(group: ConsumerGroup, record: CoordinatorRecord) -> None:
    key, value = record.key, record.value
    match key:
        case rec.ConsumerGroupMemberMetadataKey():
            group.apply_member(key.member_id, value)
        case rec.ConsumerGroupCurrentMemberAssignmentKey():
            group.apply_current(key.member_id, value)
        case rec.ConsumerGroupTargetAssignmentMemberKey():
            group.apply_target(key.member_id, value)
        case rec.ConsumerGroupTargetAssignmentMetadataKey():
            group.apply_target_epoch(value)
        case rec.ConsumerGroupRegularExpressionKey():
            group.apply_regex(key.regular_expression, value)
