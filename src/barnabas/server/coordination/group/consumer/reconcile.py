"""Machine: the next step of one member from its current to its target assignment (Kafka's CurrentAssignmentBuilder).

                      no partition to revoke, all free
        Stable ─────────────────────────────────────────► Stable, at the target's epoch
          │  partitions to revoke                             ▲
          ▼                                                   │ all partitions free
        Unrevoked ──── revoked ──────────► Unreleased ────────┘
        (keeps its epoch)                  (has the target's epoch, waits until other members revoke partitions)

A partition is free if it is neither assigned to another member nor pending revocation by another member. So a partition
never has two owners (KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, sorted_ids
from barnabas.server.coordination.group.consumer.member import (
    NO_PARTITIONS,
    ConsumerGroupMember,
    ConsumerMemberState,
    Partitions,
)

Owned = Mapping[TopicId, frozenset[int]] | None
"""The partitions that the member reports as owned; None if the request has none (unchanged since the last report)."""


def reconcile(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[TopicId, int], bool],
    owned: Owned,
) -> ConsumerGroupMember:
    """The member after its next step, or the same object if there is none. Raises KafkaError FENCED_MEMBER_EPOCH.

    `is_owned` returns True for a partition that is assigned to a member or pending revocation by a member.
    """
    match member.state:
        case ConsumerMemberState.STABLE:
            if member.member_epoch == target_epoch:
                return member
            return _next(member, member.member_epoch, target_epoch, target, is_owned, owned)
        case ConsumerMemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.revoking):
                return member
            # The revoked partitions are released now, so the member gets a new epoch.
            return _next(member, member.member_epoch + 1, target_epoch, target, is_owned, owned)
        case ConsumerMemberState.UNRELEASED_PARTITIONS:
            return _next(member, member.member_epoch, target_epoch, target, is_owned, owned)
        case ConsumerMemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in an unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _next(member, target_epoch, target_epoch, target, is_owned, owned)


def keeps_assignment(member: ConsumerGroupMember, target_epoch: int, owned: Owned) -> bool:
    """Whether the member has no step to make: it is at the target's epoch, or has not revoked its partitions yet."""
    if member.state is ConsumerMemberState.STABLE:
        return member.member_epoch == target_epoch
    return member.state is ConsumerMemberState.UNREVOKED_PARTITIONS and _still_owns(owned, member.revoking)


def withdraw(member: ConsumerGroupMember, subscribed: Partitions, owned: Owned) -> ConsumerGroupMember:
    """Revoke the partitions that are not in `subscribed`, because the member has changed its subscription. A member
    revokes them before there is a new target assignment. Returns the same object if there are no such partitions."""
    if subscribed == member.assigned:
        return member
    revoking = dict(member.revoking)
    for topic_id, partitions in member.assigned.items():
        if topic_id not in subscribed:
            _put(revoking, topic_id, revoking.get(topic_id, frozenset()) | partitions)
    if _still_owns(owned, revoking):
        return _step(member, ConsumerMemberState.UNREVOKED_PARTITIONS, member.member_epoch, subscribed, revoking)
    return _step(member, member.state, member.member_epoch, subscribed, member.revoking)


def _still_owns(owned: Owned, revoking: Partitions) -> bool:
    if owned is None:
        return True
    return any(revoking.get(topic_id, frozenset()) & partitions for topic_id, partitions in owned.items())


def _next(
    member: ConsumerGroupMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[TopicId, int], bool],
    owned: Owned,
) -> ConsumerGroupMember:
    kept: dict[TopicId, frozenset[int]] = {}
    revoking: dict[TopicId, frozenset[int]] = {}
    gained: dict[TopicId, frozenset[int]] = {}
    unreleased = False
    for topic_id in sorted_ids({*target, *member.assigned}):
        wanted = target.get(topic_id, frozenset())
        held = member.assigned.get(topic_id, frozenset())
        _put(kept, topic_id, held & wanted)
        _put(revoking, topic_id, held - wanted)
        missing = wanted - held
        free = frozenset(p for p in missing if not is_owned(topic_id, p) or p in member.revoking.get(topic_id, ()))
        unreleased = unreleased or len(free) < len(missing)
        _put(gained, topic_id, free)
    if revoking and _still_owns(owned, revoking):
        return _step(member, ConsumerMemberState.UNREVOKED_PARTITIONS, epoch, kept, revoking)
    for topic_id, partitions in gained.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
    state = ConsumerMemberState.UNRELEASED_PARTITIONS if unreleased else ConsumerMemberState.STABLE
    return _step(member, state, target_epoch, kept, NO_PARTITIONS)


def _step(
    member: ConsumerGroupMember, state: ConsumerMemberState, epoch: int, assigned: Partitions, revoking: Partitions
) -> ConsumerGroupMember:
    previous = member.previous_epoch if epoch == member.member_epoch else member.member_epoch
    changed = replace(
        member, state=state, member_epoch=epoch, previous_epoch=previous, assigned=assigned, revoking=revoking
    )
    return member if changed == member else changed


def _put(partitions: dict[TopicId, frozenset[int]], topic_id: TopicId, some: Iterable[int]) -> None:
    found = frozenset(some)
    if found:
        partitions[topic_id] = found
