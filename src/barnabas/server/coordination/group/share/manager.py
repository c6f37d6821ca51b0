"""Machine: ShareGroupHeartbeat (KIP-932): members join, subscribe, get assignments, leave, and are fenced.

A heartbeat goes through these steps, each of which writes records only for changes:

    member        found or created
    subscription  stored
    group epoch   incremented if a subscription, a subscribed topic, or the set of initialized share partitions changed
    target        computed if the assignment epoch is behind the group epoch
    assignment    the member gets its whole target assignment

Subscribed share partitions without state are stored as `initializing`. The service then sends requests to the share
coordinator, and calls `finish_initialization` with the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, sorted_ids
from barnabas.protocol.assign.server import GroupSpec, MemberSpec, ServerAssignor
from barnabas.protocol.assign.table import SHARE_ASSIGNORS
from barnabas.protocol.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.server.coordination.group.config import GroupConfigs, GroupCoordinatorConfig
from barnabas.server.coordination.group.consumer.member import Partitions, topic_names_of
from barnabas.server.coordination.group.consumer.target import metadata_hash
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.share.group import (
    NOT_ALL_REQUESTED,
    RequestedAll,
    ShareGroup,
    ShareGroupMember,
)
from barnabas.server.coordination.group.share.ports import StateTopic, StateTopics
from barnabas.server.coordination.operation import CoordinatorRecord, WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext, TopicCatalog

JOINING_EPOCH = 0
LEAVING_EPOCH = -1


class ShareGroupManager:
    """The share groups of one shard. `apply` is the method with which the shard applies a record to its state."""

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
        self.assignor: ServerAssignor = SHARE_ASSIGNORS[config.group_share_assignors[0]]
        self._group_configs = group_configs
        self._apply = apply

    def apply_and_write(self, op: WriteOperation, *records: CoordinatorRecord) -> None:
        """Apply the records to the state at once, and add them to the operation."""
        op.replay_records = False
        for record in records:
            self._apply(record)
            op.write(record)

    # -- heartbeat -----------------------------------------------------------------------------------------------

    def heartbeat(
        self, op: WriteOperation, ctx: GroupRequestContext, request: ShareGroupHeartbeatRequest
    ) -> tuple[ShareGroupHeartbeatResponse, StateTopics]:
        """Returns the response, and the share partitions to initialize at the share coordinator. Raises KafkaError."""
        _check_request(request)
        if request.member_epoch == LEAVING_EPOCH:
            group = self.table.find_share(request.group_id)
            self.remove(op, group, group.find_member(request.member_id).member_id)
            return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING_EPOCH), {}
        group = self._find_or_new(request)
        self._check_group_size(group, request.member_id)
        before = self._member(group, request)
        names = request.subscribed_topic_names
        updated = replace(
            before,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            topic_names=before.topic_names if names is None else topic_names_of(names),
            client_id=ctx.client_id or "",
            client_host=ctx.client_host,
        )
        known = group.members.get(request.member_id)
        bump = known is None or known.topic_names != updated.topic_names
        if known != updated:
            self.apply_and_write(op, group.member_record(updated))
        self._refresh_epoch(op, group, bump=bump)
        needed = self._begin_initialization(op, group)
        self._refresh_target(op, group)
        response = self._assign_target(op, group, request.member_id, full=request.member_epoch == JOINING_EPOCH or
                                names is not None, had=before.assigned)  # fmt: skip
        return response, needed

    def heartbeat_after_initialization(
        self, op: WriteOperation, group_id: str, member_id: str
    ) -> ShareGroupHeartbeatResponse:
        """The response to a heartbeat that waited until its group's new share partitions were initialized.

        It contains the member's whole assignment. Raises KafkaError.
        """
        group = self.table.find_share(group_id)
        group.find_member(member_id)
        self._refresh_target(op, group)
        return self._assign_target(op, group, member_id, full=True, had={})

    def _find_or_new(self, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        group_id = request.group_id
        group = self.table.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None or request.member_epoch != JOINING_EPOCH:
            what = "not found" if group is None else "is not a share group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return self.table.new_share(group_id)

    def _check_group_size(self, group: ShareGroup, member_id: str) -> None:
        limit = self.config.group_share_max_size
        if member_id not in group.members and len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )

    def _member(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareGroupMember:
        """The current member, or a new one if the member joins. Raises KafkaError UNKNOWN_MEMBER_ID,
        FENCED_MEMBER_EPOCH."""
        epoch = request.member_epoch
        if epoch == JOINING_EPOCH:
            return group.members.get(request.member_id) or ShareGroupMember(request.member_id)
        member = group.find_member(request.member_id)
        if epoch > member.member_epoch or (epoch < member.member_epoch and epoch != member.previous_epoch):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a {'greater' if epoch > member.member_epoch else 'smaller'} member "
                f"epoch ({epoch}) than the one known by the group coordinator ({member.member_epoch}). "
                "The member must abandon all its partitions and rejoin.",
            )
        return member

    def _assign_target(
        self, op: WriteOperation, group: ShareGroup, member_id: str, *, full: bool, had: object
    ) -> ShareGroupHeartbeatResponse:
        """Assign the member its target. The response has the assignment if `full`, or if the assignment differs from
        `had`, which the member had before the request."""
        member = group.members[member_id]
        epoch, target = group.assignment_epoch.value, self._subscribed(group, member)
        if member.member_epoch != epoch or member.assigned != target:
            previous = member.previous_epoch if member.member_epoch == epoch else member.member_epoch
            moved = replace(member, member_epoch=epoch, previous_epoch=previous, assigned=target)
            self.apply_and_write(op, group.current_record(moved))
            member = group.members[member_id]
        self.schedule_session_timeout(op, group, member_id)
        op.wait_for_pending = group.members.committed_get(member_id) is not member
        response = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(group.group_id),
        )
        if full or member.assigned != had:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                    for topic_id in sorted_ids(member.assigned)
                ]
            )
        return response

    def _subscribed(self, group: ShareGroup, member: ShareGroupMember) -> Partitions:
        """The member's target, without topics to which the member does not subscribe. Only a target assignment that is
        behind the group epoch can have such topics."""
        target = group.target_of(member.member_id)
        if group.assignment_epoch.value == group.epoch.value:
            return target
        names = set(member.topic_names)
        return {
            topic_id: partitions
            for topic_id, partitions in target.items()
            if (view := self.catalog.by_id(topic_id)) is not None and view.name in names
        }

    # -- epochs and target ---------------------------------------------------------------------------------------

    def _refresh_epoch(self, op: WriteOperation, group: ShareGroup, *, bump: bool) -> None:
        stale = group.resolved_topics_version.value != self.topics_version
        if not bump and not stale:
            return
        group.resolved_topics_version.value = self.topics_version
        self.raise_epoch(op, group, always=bump)

    def raise_epoch(self, op: WriteOperation, group: ShareGroup, *, always: bool) -> None:
        fingerprint = metadata_hash(self.catalog, group.subscribed_topics())
        if always or fingerprint != group.metadata_hash.value:
            self.apply_and_write(op, group.epoch_record(group.epoch.value + 1, fingerprint))

    def _refresh_target(self, op: WriteOperation, group: ShareGroup) -> None:
        """Compute a new target assignment if the current one is behind the group epoch. If the current target
        assignment is younger than group.share.assignment.interval.ms, a timer computes the new one later. An empty
        target assignment is replaced at once, because it is empty only while no share partition is initialized.
        """
        if group.epoch.value <= group.assignment_epoch.value:
            return
        interval = self._assignment_interval_ms(group.group_id)
        age = op.now_ms - group.assigned_at_ms.value
        if any(group.target.values()) and 0 <= age < interval:
            op.schedule(("share-assign", group.group_id), interval - age, retry=True, if_absent=True)
        else:
            self.assign(op, group)

    def assign(self, op: WriteOperation, group: ShareGroup) -> None:
        """Compute the target assignment of the current group epoch, and write records for the members whose target
        changes."""
        if group.epoch.value <= group.assignment_epoch.value:
            return
        members: dict[str, MemberSpec] = {}
        counts: dict[TopicId, int] = {}
        for member_id in sorted(group.members):
            names = self.catalog.existing(group.members[member_id].topic_names)
            views = [view for name in names if (view := self.catalog.by_name(name))]
            counts.update((view.topic_id, view.partitions) for view in views)
            topics = frozenset(view.topic_id for view in views)
            members[member_id] = MemberSpec(topics, group.target_of(member_id))
        target = self.assignor.assign(GroupSpec(members, counts, group.states.value.assignable()))
        for member_id in sorted(target):
            if member_id not in group.target or group.target_of(member_id) != target[member_id]:
                self.apply_and_write(op, group.target_record(member_id, target[member_id]))
        self.apply_and_write(op, group.target_epoch_record(group.epoch.value, op.now_ms))

    # -- the state of share partitions ---------------------------------------------------------------------------

    def _begin_initialization(self, op: WriteOperation, group: ShareGroup) -> StateTopics:
        """Mark subscribed share partitions that are not initialized as initializing, and return those whose
        initialization must be requested from the share coordinator. Share partitions that were requested less than
        group.share.initialize.retry.interval.ms ago are not requested again."""
        retry_ms = self.config.group_share_initialize_retry_interval_ms
        states = group.states.value
        needed: dict[TopicId, StateTopic] = {}
        subscribed = self.catalog.existing(group.subscribed_topics())
        if group.requested_all.covers(self.catalog, states, subscribed, op.now_ms):
            return needed
        for name in sorted(subscribed):
            view = self.catalog.by_name(name)
            if view is None:
                continue
            ready = states.initialized.get(view.topic_id)
            done = ready.partitions if ready else frozenset()
            if len(done) == view.partitions:
                continue  # also for the heartbeats of a group with thousands of share partitions
            missing = frozenset(
                p
                for p in range(view.partitions)
                if p not in done and op.now_ms - group.requested_at_ms.get((view.topic_id, p), -retry_ms) >= retry_ms
            )
            if missing:
                needed[view.topic_id] = StateTopic(name, missing)
                group.requested_at_ms.update(((view.topic_id, p), op.now_ms) for p in missing)
        if not needed:
            oldest = min(group.requested_at_ms.values(), default=op.now_ms)
            group.requested_all = RequestedAll(self.catalog, states, subscribed, oldest + retry_ms)
        begun = states.mark_initializing(needed) if needed else states
        if begun != states:
            self.apply_and_write(op, group.states_record(begun))
        return needed

    def finish_initialization(self, op: WriteOperation, group_id: str, made: StateTopics, failed: StateTopics) -> None:
        """Store the share coordinator's results. The share partitions `made` are initialized and may be assigned to
        members; the initialization of the share partitions `failed` is requested again with a later heartbeat."""
        group = self.table.share(group_id)
        if group is None:
            return
        for topic_id, topic in (*made.items(), *failed.items()):
            for p in topic.partitions:
                group.requested_at_ms.pop((topic_id, p), None)
        group.requested_all = NOT_ALL_REQUESTED
        before = group.states.value
        after = before.mark_initialized(made).remove_initializing(failed)
        if after == before:
            return
        self.apply_and_write(op, group.states_record(after))
        if made and not group.is_empty:
            self.raise_epoch(op, group, always=True)

    # -- leaving -------------------------------------------------------------------------------------------------

    def remove(self, op: WriteOperation, group: ShareGroup, member_id: str) -> None:
        """Remove a member. Partition leaders release the member's acquired records when its share session closes or
        their locks expire."""
        self.apply_and_write(op, *group.member_tombstones(member_id))
        self.raise_epoch(op, group, always=True)
        op.cancel(("share-session", group.group_id, member_id))

    def on_loaded(self, op: WriteOperation, group: ShareGroup) -> None:
        """After loading: give each member one session timeout to find this coordinator."""
        for member_id in sorted(group.members):
            self.schedule_session_timeout(op, group, member_id)

    def schedule_session_timeout(self, op: WriteOperation, group: ShareGroup, member_id: str) -> None:
        configured = self._group_configs.share_session_timeout_ms(group.group_id)
        timeout = self.config.group_share_session_timeout_ms if configured is None else configured
        op.schedule(("share-session", group.group_id, member_id), timeout, retry=True)

    def on_topics_deleted(self, op: WriteOperation, gone: Iterable[TopicId]) -> None:
        """Remove deleted topics from the state tables. The share coordinator deletes the state of their partitions
        itself."""
        topics = set(gone)
        for group_id in sorted(self.table.by_id):
            group = self.table.share(group_id)
            if group is not None:
                after = group.states.value.mark_deleting(topics).remove_deleting(topics)
                if after != group.states.value:
                    op.write(group.states_record(after))

    def _heartbeat_interval_ms(self, group_id: str) -> int:
        configured = self._group_configs.share_heartbeat_interval_ms(group_id)
        return self.config.group_share_heartbeat_interval_ms if configured is None else configured

    def _assignment_interval_ms(self, group_id: str) -> int:
        configured = self._group_configs.share_assignment_interval_ms(group_id)
        return self.config.group_share_assignment_interval_ms if configured is None else configured


def _check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Validate the fields of the request. Raises KafkaError INVALID_REQUEST."""

    def invalid(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, message)

    if not request.group_id.strip():
        raise invalid("GroupId can't be empty.")
    if not request.member_id.strip():
        raise invalid("MemberId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise invalid("RackId can't be empty.")
    if request.member_epoch < LEAVING_EPOCH:
        raise invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -1.")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise invalid("SubscribedTopicNames must be set in first request.")
