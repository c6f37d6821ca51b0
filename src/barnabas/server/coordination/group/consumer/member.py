"""Value: a member of a consumer group (KIP-848), with its assigned partitions and those it must revoke."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from operator import lt
from typing import Final

from msgspec import Struct, field

from barnabas.core.ids import TopicId, sorted_ids
from barnabas.server.coordination.group.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)
from barnabas.server.coordination.operation import CoordinatorRecord

Partitions = Mapping[TopicId, frozenset[int]]
"""Topic id -> partitions. The set of partitions is never empty."""

NO_PARTITIONS: Final[Partitions] = {}

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2


class ConsumerMemberState(IntEnum):
    """The progress of a member towards its target assignment (Kafka's MemberState). The values are stored in the
    log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions first."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not revoked yet."""
    UNKNOWN = 127
    """A state that this version does not know. The member must rejoin."""


class ClassicProtocolMetadata(Struct, frozen=True):
    """The session timeout and the protocols (assignors with metadata) of a member with the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerGroupMember(Struct, frozen=True):
    """A member: its metadata and its current assignment, which are two records in the log."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicProtocolMetadata | None = None
    member_epoch: int = 0
    previous_epoch: int = -1
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)
    """The partitions that the member must revoke and has not reported as revoked yet."""

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is ConsumerMemberState.STABLE and self.member_epoch == epoch

    def metadata_record(self, group_id: str) -> CoordinatorRecord:
        classic = self.classic
        value = ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[ClassicProtocol(name=n, metadata=m) for n, m in classic.protocols],
            ),
        )
        return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id), value)

    def assignment_record(self, group_id: str) -> CoordinatorRecord:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_current(self.assigned),
            partitions_pending_revocation=_current(self.revoking),
        )
        return CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id), value
        )


def topic_names_of(names: Sequence[str]) -> tuple[str, ...]:
    """The topics of a subscription, sorted, without duplicates. A subscription may have 100,000 topics, so that names
    that are in order already are not sorted again: those of a record always are."""
    if all(map(lt, names, islice(names, 1, None))):
        return tuple(names)
    return tuple(sorted(set(names)))


def classic_protocol_metadata(value: ConsumerGroupMemberMetadataValue) -> ClassicProtocolMetadata | None:
    """None for a member of the new protocol; also for a record without the field, as earlier versions of Barnabas
    have written it."""
    classic = value.classic_member_metadata
    if classic is None or not classic.supported_protocols:
        return None
    return ClassicProtocolMetadata(
        classic.session_timeout_ms, tuple((p.name, bytes(p.metadata)) for p in classic.supported_protocols)
    )


def state_of(number: int) -> ConsumerMemberState:
    try:
        return ConsumerMemberState(number)
    except ValueError:
        return ConsumerMemberState.UNKNOWN


def partitions_of(entries: Iterable[CurrentTopicPartitions | TargetTopicPartitions]) -> Partitions:
    return {entry.topic_id: frozenset(entry.partitions) for entry in entries if entry.partitions}


def target_entries(partitions: Partitions) -> list[TargetTopicPartitions]:
    return [
        TargetTopicPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
        for topic_id in sorted_ids(partitions)
    ]


def _current(partitions: Partitions) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]), assignment_epochs=None)
        for topic_id in sorted_ids(partitions)
    ]


def pairs(partitions: Partitions) -> Iterable[tuple[TopicId, int]]:
    """The (topic id, partition) pairs, sorted."""
    for topic_id in sorted_ids(partitions):
        for partition in sorted(partitions[topic_id]):
            yield topic_id, partition
