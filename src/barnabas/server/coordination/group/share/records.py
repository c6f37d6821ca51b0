"""Table: the records of share groups (KIP-932) in `__consumer_offsets`, as Apache Kafka 4.3 reads and writes them."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import Message, MessageStruct, array, int8, int32, int64, string, uuid
from barnabas.server.coordination.group.records import TargetTopicPartitions
from barnabas.server.coordination.log_format import RecordKind


class ShareGroupMemberMetadataKey(Message, versions="0"):
    """Kind 10: the subscription and the client of one member of a share group."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    rack_id: str | None = string(null="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Message, versions="0"):
    """Kind 11: the epoch of a share group, and a hash of the metadata of its topics."""

    group_id: str = string()


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, versions="0"):
    """Kind 12: the epoch and the time of the target assignment of a share group."""

    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, versions="0"):
    """Kind 13: the target assignment of one member of a share group."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class ShareGroupCurrentMemberAssignmentKey(Message, versions="0"):
    """Kind 14: the current assignment of one member of a share group."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, versions="0"):
    """Kind 15: the share partitions whose state is being initialized, is initialized, or is being deleted."""

    group_id: str = string()


class TopicPartitionsInfo(MessageStruct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class TopicInfo(MessageStruct):
    topic_id: UUID = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


SHARE_KINDS = (
    RecordKind(10, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    RecordKind(11, ShareGroupMetadataKey, ShareGroupMetadataValue),
    RecordKind(12, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    RecordKind(13, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    RecordKind(14, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    RecordKind(15, ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
)
