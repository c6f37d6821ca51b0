"""Machine: ConsumerGroupHeartbeat (KIP-848): members join, subscribe, reconcile, leave, and are fenced.

A heartbeat goes through these steps, each of which writes records only for changes:

    member        found, created, or put in the place of a static member
    subscription  stored; regular expressions are resolved to topics after the heartbeat (`expressions.py`)
    group epoch   incremented if a subscription or the subscribed topics changed
    target        computed if the assignment epoch is behind the group epoch
    reconcile     the member's next step towards its target assignment

Records are applied as they are written, so that each step sees the changes of the previous ones. The runtime rolls all
of them back if the operation fails or cannot be appended. The rules are those of Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import sorted_ids, uuid_to_text
from barnabas.core.rng import random_uuid
from barnabas.protocol.assign.server import ServerAssignor
from barnabas.protocol.assign.table import SERVER_ASSIGNORS
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.coordination.group.classic.group import ClassicGroup
from barnabas.server.coordination.group.config import GroupConfigs, GroupCoordinatorConfig
from barnabas.server.coordination.group.consumer.expressions import (
    ExpressionUpdate,
    delete_unused_expressions,
    update_expressions,
)
from barnabas.server.coordination.group.consumer.group import ConsumerGroup, EpochBump
from barnabas.server.coordination.group.consumer.member import (
    JOINING_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupMember,
    ConsumerMemberState,
    Partitions,
    topic_names_of,
)
from barnabas.server.coordination.group.consumer.reconcile import Owned, keeps_assignment, reconcile, withdraw
from barnabas.server.coordination.group.consumer.requests import (
    check_epoch,
    check_request,
    is_full,
    is_leaving,
    owned_of,
)
from barnabas.server.coordination.group.consumer.target import compute_target, metadata_hash
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.share.group import ShareGroup
from barnabas.server.coordination.operation import CoordinatorRecord, WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext, TopicCatalog

LEFT: Final = "left the group"
FENCE_REASONS: Final = {
    "consumer-session": "sent no heartbeat for its session timeout",
    "consumer-rebalance": "did not revoke its partitions within its rebalance timeout",
    "consumer-join": "did not rejoin within its rebalance timeout",
    "consumer-sync": "did not fetch its assignment within its rebalance timeout",
}
"""Kind of timer -> the reason for which its member is fenced."""


class ConsumerGroupManager:
    """The consumer groups of one shard. `apply` is the method with which the shard applies a record to its state."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        group_configs: GroupConfigs,
        table: GroupTable,
        catalog: TopicCatalog,
        apply: Callable[[CoordinatorRecord], None],
    ) -> None:
        self.config = config
        self.table = table
        self.catalog = catalog
        self.topics_version = 1
        """Incremented with each new metadata image."""
        self.created_version = 1
        """The `topics_version` of the last image with new topics."""
        self.unprepared: set[str] = set()
        """The groups whose expressions could not be resolved, because the shell had not matched them yet."""
        self.visible: dict[str, Callable[[str], bool]] = {}
        """By group, the topics that its next resolution of expressions may find: those that the client of the latest
        heartbeat may describe. Without an entry, all topics."""
        self._group_configs = group_configs
        self._apply = apply
        self._assignors: dict[str, ServerAssignor] = {
            name: SERVER_ASSIGNORS[name] for name in config.group_consumer_assignors
        }

    def apply_and_write(self, op: WriteOperation, *records: CoordinatorRecord) -> None:
        """Apply the records to the state at once, and add them to the operation."""
        op.replay_records = False
        for record in records:
            self._apply(record)
            op.write(record)

    @property
    def default_assignor(self) -> str:
        return next(iter(self._assignors))

    # -- heartbeat -----------------------------------------------------------------------------------------------

    def heartbeat(
        self, op: WriteOperation, ctx: GroupRequestContext, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle the heartbeat of a member that joins or stays. Raises KafkaError."""
        self.check_group_size(group, request.member_id)
        member_id = request.member_id or uuid_to_text(random_uuid(op.rng))
        owned = owned_of(request)
        member = self.subscribe(op, group, member_id, request.member_epoch, request.instance_id, owned)
        names = request.subscribed_topic_names
        updated = replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms,
            server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
            topic_names=member.topic_names if names is None else topic_names_of(names),
            topic_regex=member.topic_regex
            if request.subscribed_topic_regex is None
            else request.subscribed_topic_regex,
            client_id=ctx.client_id or "",
            client_host=ctx.client_host,
            classic=None,
        )
        if ctx.may_describe is not None and updated.topic_regex:
            self.visible[group.group_id] = ctx.may_describe
        now = self.update_member(op, group, updated, owned)
        self.schedule_session_timeout(op, group, member_id)
        op.wait_for_pending = group.members.committed_get(member_id) is not now
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=now.member_epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(group.group_id),
        )
        if is_full(request) or now.assigned != member.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(now.assigned[topic_id]))
                    for topic_id in sorted_ids(now.assigned)
                ]
            )
        return response

    def check(self, ctx: GroupRequestContext, request: ConsumerGroupHeartbeatRequest) -> bool:
        """Validate the request. Returns whether the member leaves. Raises KafkaError."""
        check_request(request, ctx.api_version, list(self._assignors))
        if request.subscribed_topic_regex:
            Re2Pattern(request.subscribed_topic_regex)
        return is_leaving(request)

    def check_group_size(self, group: ConsumerGroup, member_id: str) -> None:
        if member_id not in group.members and len(group.members) >= self.config.group_consumer_max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{self.config.group_consumer_max_size} members.",
            )

    def subscribe(
        self,
        op: WriteOperation,
        group: ConsumerGroup,
        member_id: str,
        epoch: int,
        instance_id: str | None,
        owned: Owned,
    ) -> ConsumerGroupMember:
        """The current member, or a new one if the member joins. Raises KafkaError."""
        if instance_id is None:
            if epoch == JOINING_EPOCH:
                return group.members.get(member_id) or ConsumerGroupMember(member_id)
            member = group.find_member(member_id)
            check_epoch(member, epoch, owned)
            return member
        owner = group.static_member(instance_id)
        if epoch != JOINING_EPOCH:
            member = check_static(group, owner, member_id, instance_id)
            check_epoch(member, epoch, owned)
            return member
        if owner is None or owner.member_id == member_id:
            return owner or ConsumerGroupMember(member_id)
        if owner.classic is None and owner.member_epoch != STATIC_LEAVING_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {owner.member_id} member.",
            )
        return self.replace_member(op, group, owner, member_id)

    def replace_member(
        self, op: WriteOperation, group: ConsumerGroup, owner: ConsumerGroupMember, member_id: str
    ) -> ConsumerGroupMember:
        """A static member has restarted with a new member id. The new id gets the target assignment of the old one."""
        target = group.target_of(owner.member_id)
        member = replace(owner, member_id=member_id, member_epoch=0, previous_epoch=0)
        self.apply_and_write(op, *group.member_tombstones(owner.member_id))
        self.apply_and_write(op, member.metadata_record(group.group_id), group.target_record(member_id, target))
        self.apply_and_write(op, member.assignment_record(group.group_id))
        self.cancel_timers(op, group.group_id, owner.member_id)
        return group.members[member_id]

    def update_member(
        self, op: WriteOperation, group: ConsumerGroup, updated: ConsumerGroupMember, owned: Owned
    ) -> ConsumerGroupMember:
        """Store the member's subscription, update the group, and reconcile the member. Returns the resulting member."""
        member_id = updated.member_id
        before = group.members.get(member_id)
        names_changed = updated.topic_names != (() if before is None else before.topic_names)
        expression = "" if before is None else before.topic_regex or ""
        if before != updated:
            self.apply_and_write(op, updated.metadata_record(group.group_id))
        update = update_expressions(self, op, group, expression, updated.topic_regex or "")
        change = ""
        if names_changed or update is ExpressionUpdate.RESOLVED or not group.epoch.value:
            change = f"member {member_id} " + ("joined" if before is None else "subscribes to other topics")
        self._refresh_topics(op, group, change)
        self._refresh_target(op, group)
        member = group.members[member_id]
        epoch = group.assignment_epoch.value
        if not keeps_assignment(member, epoch, owned):
            step = reconcile(
                member,
                epoch,
                self._subscribed(group, member, group.target_of(member_id)),
                lambda topic_id, partition: (topic_id, partition) in group.owners,
                owned,
            )
        elif names_changed or update is not ExpressionUpdate.NONE or epoch < group.epoch.value:
            step = withdraw(member, self._subscribed(group, member, member.assigned), owned)
        else:
            return member
        if step is not member:
            self.apply_and_write(op, step.assignment_record(group.group_id))
            member = group.members[member_id]
            if member.classic is None:
                self._schedule_rebalance_timeout(op, group, member)
        return member

    # -- topics and target ---------------------------------------------------------------------------------------

    def _refresh_topics(self, op: WriteOperation, group: ConsumerGroup, change: str) -> None:
        """Increment the group epoch if a subscription changed (`change` is the reason) or the subscribed topics did."""
        stale = group.resolved_topics_version.value != self.topics_version
        if not change and not stale:
            return
        group.resolved_topics_version.value = self.topics_version
        self.raise_epoch(op, group, change)

    def raise_epoch(self, op: WriteOperation, group: ConsumerGroup, change: str) -> None:
        """Increment the group epoch for the reason `change`. If `change` is empty, increment only if the topics
        changed."""
        fingerprint = metadata_hash(self.catalog, group.subscribed_topics())
        if change or fingerprint != group.metadata_hash.value:
            group.last_epoch_bump.value = EpochBump(change or "the subscribed topics changed", op.now_ms)
            self.apply_and_write(op, group.epoch_record(group.epoch.value + 1, fingerprint))

    def _subscribed(self, group: ConsumerGroup, member: ConsumerGroupMember, partitions: Partitions) -> Partitions:
        """Those of the partitions whose topics the member subscribes to. The target assignment can be older than the
        member's subscription."""
        topics = group.topics_of(member)
        return {
            topic_id: some
            for topic_id, some in partitions.items()
            if (view := self.catalog.by_id(topic_id)) is not None and view.name in topics
        }

    def _refresh_target(self, op: WriteOperation, group: ConsumerGroup) -> None:
        """Compute a new target assignment if the current one is behind the group epoch. If the current target
        assignment is younger than group.consumer.assignment.interval.ms, a timer computes the new one later
        (KIP-1263)."""
        if group.epoch.value <= group.assignment_epoch.value:
            return
        configured = self._group_configs.consumer_assignment_interval_ms(group.group_id)
        interval = self.config.group_consumer_assignment_interval_ms if configured is None else configured
        age = op.now_ms - group.assigned_at_ms.value
        if group.assignment_epoch.value and 0 <= age < interval:
            op.schedule(("consumer-assign", group.group_id), interval - age, retry=True, if_absent=True)
        else:
            self.assign(op, group)

    def assign(self, op: WriteOperation, group: ConsumerGroup) -> None:
        """Compute the target assignment of the current group epoch, and write records for the members whose target
        changes."""
        if group.epoch.value <= group.assignment_epoch.value:
            return
        name = group.preferred_assignor(self.default_assignor)
        assignor = self._assignors.get(name) or self._assignors[self.default_assignor]
        target = compute_target(group, self.catalog, assignor)
        for member_id in sorted(target):
            if member_id not in group.target or group.target_of(member_id) != target[member_id]:
                self.apply_and_write(op, group.target_record(member_id, target[member_id]))
        # The first assignment, if nothing is subscribed yet, does not delay that of the topics (as in Kafka).
        is_empty = not group.assignment_epoch.value and not group.subscribed_topics()
        self.apply_and_write(op, group.target_epoch_record(group.epoch.value, 0 if is_empty else op.now_ms))

    # -- leaving -------------------------------------------------------------------------------------------------

    def leave(
        self, op: WriteOperation, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerGroupMember | None, ConsumerGroupHeartbeatResponse]:
        """Handle the heartbeat of a member that leaves. Returns the response, and the member to remove: None if it is a
        static member that leaves temporarily (member epoch -2)."""
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            return group.find_member(request.member_id), response
        member = check_static(group, group.static_member(request.instance_id), request.member_id, request.instance_id)
        if request.member_epoch != STATIC_LEAVING_EPOCH:
            return member, response
        absent = replace(member, member_epoch=STATIC_LEAVING_EPOCH, revoking=NO_PARTITIONS)
        self.apply_and_write(op, absent.assignment_record(group.group_id))
        op.cancel(("consumer-rebalance", group.group_id, member.member_id))
        return None, response

    def remove(self, op: WriteOperation, group: ConsumerGroup, member_id: str, why: str) -> None:
        """Remove a member; `why` completes the sentence "member ... `why`". The member's partitions are free, and the
        other members get them with their next heartbeats."""
        self.apply_and_write(op, *group.member_tombstones(member_id))
        delete_unused_expressions(self, op, group)
        self.raise_epoch(op, group, f"member {member_id} {why}")
        self.cancel_timers(op, group.group_id, member_id)

    # -- timers --------------------------------------------------------------------------------------------------

    def on_loaded(self, op: WriteOperation, group: ConsumerGroup) -> None:
        """After loading: give each member one session timeout to find this coordinator."""
        for member_id in sorted(group.members):
            member = group.members[member_id]
            if member.classic is not None:
                op.schedule(
                    ("consumer-session", group.group_id, member_id), member.classic.session_timeout_ms, retry=True
                )
                continue
            self.schedule_session_timeout(op, group, member_id)
            self._schedule_rebalance_timeout(op, group, member)

    def schedule_session_timeout(self, op: WriteOperation, group: ConsumerGroup, member_id: str) -> None:
        configured = self._group_configs.consumer_session_timeout_ms(group.group_id)
        timeout = self.config.group_consumer_session_timeout_ms if configured is None else configured
        op.schedule(("consumer-session", group.group_id, member_id), timeout, retry=True)

    def _schedule_rebalance_timeout(
        self, op: WriteOperation, group: ConsumerGroup, member: ConsumerGroupMember
    ) -> None:
        """Schedule the rebalance timeout of the member if it must revoke partitions; otherwise cancel the member's
        timer."""
        key = ("consumer-rebalance", group.group_id, member.member_id)
        if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
            op.schedule(key, member.rebalance_timeout_ms, retry=True)
        else:
            op.cancel(key)

    def cancel_timers(self, op: WriteOperation, group_id: str, member_id: str) -> None:
        for kind in ("consumer-session", "consumer-rebalance", "consumer-join", "consumer-sync"):
            op.cancel((kind, group_id, member_id))

    def _heartbeat_interval_ms(self, group_id: str) -> int:
        configured = self._group_configs.consumer_heartbeat_interval_ms(group_id)
        return self.config.group_consumer_heartbeat_interval_ms if configured is None else configured

    def find_or_new(self, op: WriteOperation, group_id: str, *, joining: bool) -> ConsumerGroup | ClassicGroup:
        """The group of a heartbeat. A group that does not exist, or an empty classic group, is replaced by a new
        consumer group if the member joins. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.table.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not joining or isinstance(group, ShareGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        if isinstance(group, ClassicGroup):
            if not group.is_empty:
                return group
            if not group.is_simple:
                self.apply_and_write(op, *group.tombstones())
        new_group = self.table.by_id[group_id] = ConsumerGroup(group_id, self.table.timeline)
        return new_group


def check_static(
    group: ConsumerGroup, owner: ConsumerGroupMember | None, member_id: str, instance_id: str
) -> ConsumerGroupMember:
    """Check that `owner`, the member that has the instance id, has the request's `member_id`, and return it. Raises
    KafkaError UNKNOWN_MEMBER_ID if there is no such owner, or FENCED_INSTANCE_ID if it has another member id."""
    if owner is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
        )
    return owner
