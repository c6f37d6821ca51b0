"""Machine: ExplainGroup: which phase a group is in, what each member must do next, and the remaining timeouts.

The explanation is computed from the timers and from the newest state of the group, even if that state is not committed
yet. Only the state name of a share group is that of the committed state.

phase     initial-delay   the first rebalance of a classic group waits for more members (KIP-134)
          join            members must rejoin
          sync            the leader must send the assignment, or members must fetch it
          store           the assignment is being appended to the log
          assign          the target assignment must be computed
          reconcile       members are moving to the target assignment
pending   come-back       a new member was given its member id and must send JoinGroup again
          rejoin          the member must send JoinGroup
          assign          the leader must send the assignment with SyncGroup
          sync            the member must send SyncGroup to get its assignment
          revoke          the member must revoke partitions
          release         the member waits until other members have revoked partitions
          heartbeat       the member's next heartbeat brings its new epoch or assignment
          return          a static member left temporarily and is expected to join again
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from barnabas.core.ids import TopicId
from barnabas.protocol.wire.messages.explain_group import ExplainedGroup, Holding, Member
from barnabas.server.coordination.group import groups
from barnabas.server.coordination.group.classic.group import (
    COMPLETING,
    PREPARING,
    STABLE,
    ClassicGroup,
    ClassicGroupMember,
)
from barnabas.server.coordination.group.consumer.group import ConsumerGroup, ConsumerState
from barnabas.server.coordination.group.consumer.member import (
    NO_PARTITIONS,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupMember,
    ConsumerMemberState,
    Partitions,
    pairs,
)
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.offsets import Offsets
from barnabas.server.coordination.group.share.group import ShareGroup
from barnabas.server.coordination.operation import TimerKey
from barnabas.server.coordination.ports import TopicCatalog

RemainingMs = Callable[[TimerKey], int]
"""The milliseconds until a timer fires; -1 if there is no such timer."""

_PENDING: Final = {
    ConsumerMemberState.UNREVOKED_PARTITIONS: "revoke",
    ConsumerMemberState.UNRELEASED_PARTITIONS: "release",
}


def explain(
    table: GroupTable, offsets: Offsets, catalog: TopicCatalog, group_id: str, remaining_ms: RemainingMs, now_ms: int
) -> ExplainedGroup:
    """The explanation of one group. Raises KafkaError GROUP_ID_NOT_FOUND."""
    group = table.find(group_id)
    explained = ExplainedGroup(
        group_id=group_id,
        now_ms=now_ms,
        group_type=groups.type_of(group).value,
        protocol_type=groups.protocol_type(group),
    )
    if isinstance(group, ClassicGroup):
        _classic(explained, group, remaining_ms)
    elif isinstance(group, ConsumerGroup):
        _consumer(explained, group, catalog, remaining_ms)
    else:
        _share(explained, group, remaining_ms)
    summary = offsets.summary(group)
    explained.offset_count = summary.committed
    explained.pending_offset_count = summary.pending
    explained.kept_offset_count = summary.kept
    explained.offsets_retention_ms = summary.retention_ms
    explained.first_offset_expiry_ms = summary.first_expiry_ms
    explained.next_offset_check_left_ms = remaining_ms(("expire",))
    return explained


# -- classic groups --------------------------------------------------------------------------------------------------


def _classic(explained: ExplainedGroup, group: ClassicGroup, remaining_ms: RemainingMs) -> None:
    explained.state = group.state.value
    explained.state_since_ms = -1 if group.state_timestamp_ms is None else group.state_timestamp_ms
    explained.epoch = group.generation_id
    explained.assignor = group.protocol_name or ""
    explained.leader_id = group.leader_id
    explained.reason = group.reason
    if group.state is PREPARING:
        explained.phase = "join" if group.initial_remaining_ms is None else "initial-delay"
        explained.phase_left_ms = remaining_ms(("join", group.group_id))
    elif group.state is COMPLETING:
        explained.phase = "sync" if group.leader_id in group.pending_sync else "store"
        explained.phase_left_ms = remaining_ms(("sync", group.group_id))
    explained.members = [
        Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            epoch=-1 if member.is_new else group.generation_id,
            pending=_classic_pending(group, member),
            session_left_ms=remaining_ms(("heartbeat", group.group_id, member.member_id)),
            rebalance_left_ms=explained.phase_left_ms if _classic_pending(group, member) else -1,
        )
        for member in group.members.values()
    ]
    explained.members += [
        Member(
            member_id=member_id,
            pending="come-back",
            session_left_ms=remaining_ms(("heartbeat", group.group_id, member_id)),
        )
        for member_id in group.pending_join
    ]


def _classic_pending(group: ClassicGroup, member: ClassicGroupMember) -> str:
    if group.state is PREPARING:
        return "rejoin" if member.awaiting_join is None else ""
    if group.state in (COMPLETING, STABLE) and member.member_id in group.pending_sync:
        return "assign" if group.state is COMPLETING and group.is_leader(member.member_id) else "sync"
    return ""


# -- consumer groups -------------------------------------------------------------------------------------------------


def _consumer(
    explained: ExplainedGroup, group: ConsumerGroup, catalog: TopicCatalog, remaining_ms: RemainingMs
) -> None:
    state, change = group.state(), group.last_epoch_bump.value
    explained.state = state.value
    explained.epoch = group.epoch.value
    explained.assignment_epoch = group.assignment_epoch.value
    explained.reason = change.reason
    if state in (
        ConsumerState.ASSIGNING,
        ConsumerState.RECONCILING,
    ):  # a stable or empty group does not store the time of the change
        explained.state_since_ms = change.at_ms
    explained.assignor = group.preferred_assignor("")
    if state is ConsumerState.ASSIGNING:
        explained.phase = "assign"
        explained.phase_left_ms = remaining_ms(("consumer-assign", group.group_id))
    elif state is ConsumerState.RECONCILING:
        explained.phase = "reconcile"
        if change.at_ms < 0:
            explained.state_since_ms = group.assigned_at_ms.value
    owners = _holders(group)
    for member_id in sorted(group.members):
        member, target = group.members[member_id], group.target_of(member_id)
        explained.members.append(
            Member(
                member_id=member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=member.member_epoch,
                pending=_consumer_pending(group, member),
                session_left_ms=remaining_ms(("consumer-session", group.group_id, member_id)),
                rebalance_left_ms=max(
                    remaining_ms((kind, group.group_id, member_id))
                    for kind in ("consumer-rebalance", "consumer-join", "consumer-sync")
                ),
                assigned_count=_count(member.assigned),
                target_count=_count(target),
                to_revoke=[_holding(catalog, key, member_id) for key in pairs(member.revoking)],
                awaited=[_holding(catalog, key, owners[key]) for key in _missing(member, target) if key in owners],
            )
        )


def _consumer_pending(group: ConsumerGroup, member: ConsumerGroupMember) -> str:
    if member.member_epoch == STATIC_LEAVING_EPOCH:
        return "return"
    if member.state is ConsumerMemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member):
        return "heartbeat"  # all partitions are free; the next heartbeat assigns them
    if member.state in _PENDING:
        return _PENDING[member.state]
    return "" if member.is_reconciled_to(group.assignment_epoch.value) else "heartbeat"


def _holders(group: ConsumerGroup) -> dict[tuple[TopicId, int], str]:
    """The member that owns each partition or must still revoke it."""
    return {
        key: member_id
        for member_id in sorted(group.members)
        for part in (group.members[member_id].assigned, group.members[member_id].revoking)
        for key in pairs(part)
    }


def _missing(member: ConsumerGroupMember, target: Partitions) -> Iterator[tuple[TopicId, int]]:
    for topic_id, partition in pairs(target):
        if partition not in (member.assigned or NO_PARTITIONS).get(topic_id, frozenset()):
            yield topic_id, partition


def _holding(catalog: TopicCatalog, key: tuple[TopicId, int], member_id: str) -> Holding:
    """The partition with its owner. A deleted topic is shown by its id."""
    view = catalog.by_id(key[0])
    return Holding(topic=str(key[0]) if view is None else view.name, partition=key[1], member_id=member_id)


def _count(partitions: Partitions) -> int:
    return sum(len(numbers) for numbers in partitions.values())


# -- share groups ----------------------------------------------------------------------------------------------------


def _share(explained: ExplainedGroup, group: ShareGroup, remaining_ms: RemainingMs) -> None:
    explained.state = group.committed_state().value
    explained.epoch = group.epoch.value
    explained.assignment_epoch = group.assignment_epoch.value
    if group.epoch.value > group.assignment_epoch.value:
        explained.phase = "assign"
        explained.phase_left_ms = remaining_ms(("share-assign", group.group_id))
    for member_id in sorted(group.members):
        member = group.members[member_id]
        behind = member.member_epoch < group.assignment_epoch.value
        explained.members.append(
            Member(
                member_id=member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                epoch=member.member_epoch,
                pending="heartbeat" if behind else "",
                session_left_ms=remaining_ms(("share-session", group.group_id, member_id)),
                assigned_count=_count(member.assigned),
            )
        )
