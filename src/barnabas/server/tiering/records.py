"""Codec: the events of remote segments <-> the values of records in `__remote_log_metadata`, in Kafka's format.

    value := frame version (unsigned varint, 1)  api key (unsigned varint)  version (unsigned varint)  message

The record's key is null. The messages and the framing are those of Kafka's RemoteLogMetadataSerde, and
`metadata_partition` is Kafka's RemoteLogMetadataTopicPartitioner, so that a topic written by Kafka's
TopicBasedRemoteLogMetadataManager can be read, and the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from barnabas.core.buffers import Buffer
from barnabas.core.hashing import murmur2
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.schema import (
    Message,
    MessageStruct,
    array,
    binary,
    boolean,
    int8,
    int32,
    int64,
    nested,
    schema_of,
    string,
    uuid,
)
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.tiering.errors import RemoteMetadataError
from barnabas.server.tiering.values import (
    PartitionDeleteState,
    RemoteLogEvent,
    RemotePartition,
    RemotePartitionDelete,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

_FRAME_VERSION: Final = 1
_HEAD_BYTES: Final = 3
_MASK_32: Final = 0xFFFFFFFF


class TopicIdPartitionEntry(MessageStruct):
    name: str = string()
    id: UUID = uuid()
    partition: int = int32()


class RemoteLogSegmentIdEntry(MessageStruct):
    topic_id_partition: TopicIdPartitionEntry = nested(TopicIdPartitionEntry)
    id: UUID = uuid()


class SegmentLeaderEpochEntry(MessageStruct):
    leader_epoch: int = int32()
    offset: int = int64()


class RemoteLogSegmentMetadataRecord(Message, key=0, versions="0", flexible="0+"):
    """A remote segment whose copy has begun."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = nested(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = binary(null="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0)


class RemoteLogSegmentMetadataUpdateRecord(Message, key=1, versions="0", flexible="0+"):
    """A remote segment has another state."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = nested(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = binary(null="0+", default=None)
    remote_log_segment_state: int = int8()


class RemotePartitionDeleteMetadataRecord(Message, key=2, versions="0", flexible="0+"):
    """A partition was deleted, or its remote segments are being deleted."""

    topic_id_partition: TopicIdPartitionEntry = nested(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


_RECORDS: Final[Mapping[int, type[Message]]] = {
    schema_of(kind).key: kind
    for kind in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
    )
}


def metadata_partition(partition: RemotePartition, count: int) -> int:
    """The partition of `__remote_log_metadata`, of `count`, that has the events of `partition`."""
    number = partition.topic_id.int
    high, low = number >> 64, number & ((1 << 64) - 1)
    # Java's Objects.hash(topic id, partition number) of Kafka's TopicIdPartition without the topic's name
    hashed = 1
    for part in (_java_long_hash(low), _java_long_hash(high), partition.partition):
        hashed = (31 * hashed + part) & _MASK_32
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _java_long_hash(value: int) -> int:
    return (value ^ (value >> 32)) & _MASK_32


def encode_event(event: RemoteLogEvent) -> bytes:
    """The value of the record for `event`."""
    message: Message
    match event:
        case RemoteSegment():
            message = RemoteLogSegmentMetadataRecord(
                remote_log_segment_id=_id_entry(event.id),
                start_offset=event.start_offset,
                end_offset=event.end_offset,
                broker_id=event.broker_id,
                max_timestamp_ms=event.max_timestamp,
                event_timestamp_ms=event.event_timestamp,
                segment_leader_epochs=[
                    SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in event.leader_epochs
                ],
                segment_size_in_bytes=event.size_bytes,
                custom_metadata=event.custom_metadata,
                remote_log_segment_state=event.state,
                txn_index_empty=event.txn_index_empty,
            )
        case RemoteSegmentUpdate():
            message = RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=_id_entry(event.id),
                broker_id=event.broker_id,
                event_timestamp_ms=event.event_timestamp,
                custom_metadata=event.custom_metadata,
                remote_log_segment_state=event.state,
            )
        case RemotePartitionDelete():
            message = RemotePartitionDeleteMetadataRecord(
                topic_id_partition=_partition_entry(event.partition),
                broker_id=event.broker_id,
                event_timestamp_ms=event.event_timestamp,
                remote_partition_delete_state=event.state,
            )
    return bytes((_FRAME_VERSION, schema_of(message).key, 0)) + encode(message, 0)


def decode_event(value: Buffer) -> RemoteLogEvent:
    """The event in the value of a record. Raises RemoteMetadataError."""
    if len(value) < _HEAD_BYTES or value[0] != _FRAME_VERSION:
        raise RemoteMetadataError(
            f"A record of {len(value)} bytes is not an event of a remote segment: it begins with "
            f"{bytes(value[:_HEAD_BYTES]).hex() or 'nothing'}."
        )
    kind = _RECORDS.get(value[1])
    if kind is None or value[2] != 0:
        raise RemoteMetadataError(
            f"Remote log metadata of type {value[1]} version {value[2]} is unknown: a newer program has written it."
        )
    try:
        return _event(decode(kind, 0, value, _HEAD_BYTES))
    except (WireError, ValueError) as error:
        raise RemoteMetadataError(f"A {kind.__name__} cannot be read: {error}") from error


def _event(message: Message) -> RemoteLogEvent:
    if isinstance(message, RemoteLogSegmentMetadataRecord):
        return RemoteSegment(
            _segment_id(message.remote_log_segment_id),
            message.start_offset,
            message.end_offset,
            message.broker_id,
            message.max_timestamp_ms,
            message.event_timestamp_ms,
            tuple(EpochEntry(entry.leader_epoch, entry.offset) for entry in message.segment_leader_epochs),
            message.segment_size_in_bytes,
            _bytes_or_none(message.custom_metadata),
            RemoteSegmentState(message.remote_log_segment_state),
            message.txn_index_empty,
        )
    if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
        return RemoteSegmentUpdate(
            _segment_id(message.remote_log_segment_id),
            message.broker_id,
            message.event_timestamp_ms,
            RemoteSegmentState(message.remote_log_segment_state),
            _bytes_or_none(message.custom_metadata),
        )
    assert isinstance(message, RemotePartitionDeleteMetadataRecord)
    return RemotePartitionDelete(
        _partition(message.topic_id_partition),
        message.broker_id,
        message.event_timestamp_ms,
        PartitionDeleteState(message.remote_partition_delete_state),
    )


def _bytes_or_none(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(data)


def _partition_entry(partition: RemotePartition) -> TopicIdPartitionEntry:
    return TopicIdPartitionEntry(name=partition.topic, id=partition.topic_id, partition=partition.partition)


def _id_entry(segment: RemoteSegmentId) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(topic_id_partition=_partition_entry(segment.partition), id=segment.id)


def _partition(entry: TopicIdPartitionEntry) -> RemotePartition:
    return RemotePartition(entry.id, entry.partition, entry.name)


def _segment_id(entry: RemoteLogSegmentIdEntry) -> RemoteSegmentId:
    return RemoteSegmentId(_partition(entry.topic_id_partition), entry.id)
