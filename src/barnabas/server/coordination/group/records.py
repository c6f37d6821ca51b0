"""Table: the records of `__consumer_offsets`, as Apache Kafka 4.3 reads and writes them.

Numbers and fields are those of group-coordinator/src/main/resources/common/message. The class of its key identifies a
kind of record. A tombstone (a value of None) deletes the entity that the key names. The kinds of streams groups (17 to
23) are not listed; such records are skipped when the log is loaded.
"""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    Message,
    MessageStruct,
    array,
    binary,
    int8,
    int32,
    int64,
    nested,
    string,
    uuid,
)
from barnabas.server.coordination.log_format import RecordKind

# -- offsets and classic groups --------------------------------------------------------------------------------------


class OffsetCommitKey(Message, versions="0"):
    """Kind 1: the committed offset of a group for one partition. Kind 0 has the same fields; Kafka wrote it before
    0.8.2.2."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="0"):
    """Kind 2: a classic group."""

    group: str = string()


class MemberMetadata(MessageStruct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(null="0+")
    leader: str | None = string(null="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


# -- consumer groups (KIP-848) ---------------------------------------------------------------------------------------


class ConsumerGroupMetadataKey(Message, versions="0"):
    """Kind 3: the epoch of a consumer group, and a hash of the metadata of its topics."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="0"):
    """Kind 4: the partitions of the topics of a consumer group. Kafka wrote this kind before 4.1 (KIP-1101); it is
    listed so that such records are recognized."""

    group_id: str = string()


class PartitionMetadata(MessageStruct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(MessageStruct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, versions="0"):
    """Kind 5: the subscription and the client of one member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(MessageStruct):
    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(MessageStruct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string(null="0+")
    rack_id: str | None = string(null="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(null="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(null="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(ClassicMemberMetadata, null="0+", tag=0)
    """None for a member of the new protocol. Kafka's schema has the default `null` without quotation marks, which its
    generator reads as an empty struct: None is therefore written, and a field that is left out is an empty struct."""


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0"):
    """Kind 6: the epoch and the time of the target assignment of a consumer group."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0"):
    """Kind 7: the target assignment of one member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class TargetTopicPartitions(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0"):
    """Kind 8: the current assignment of one member of a consumer group, and the partitions that it must revoke."""

    group_id: str = string()
    member_id: str = string()


class CurrentTopicPartitions(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, null="0+", tag=0)
    """The member epoch in which each partition was assigned (KIP-1251); None if unknown, which Kafka takes for the
    member epoch. The default is empty, as in Kafka (see `classic_member_metadata`)."""


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, versions="0"):
    """Kind 16: the topics that a subscribed regular expression matched when it was last resolved."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


GROUP_KINDS = (
    RecordKind(1, OffsetCommitKey, OffsetCommitValue, write_version=4),
    RecordKind(0, OffsetCommitKey, OffsetCommitValue, write_version=4),
    RecordKind(2, GroupMetadataKey, GroupMetadataValue, write_version=3),
    RecordKind(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    RecordKind(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    RecordKind(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    RecordKind(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    RecordKind(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    RecordKind(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    RecordKind(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
"""If two kinds have the same key class, the first one is written."""
