"""Codec: the records of `__remote_log_metadata` (KIP-405), in the format of Kafka's RemoteLogMetadataSerde.

    value := frame version (unsigned varint, 1)  api key (unsigned varint)  version (unsigned varint)  message

The record's key is null. `metadata_partition` is Kafka's RemoteLogMetadataTopicPartitioner, so that a topic written by
Kafka's TopicBasedRemoteLogMetadataManager can be read, and the reverse.
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

COPY_SEGMENT_FINISHED: Final = 1
"""The state of a segment that can be read."""
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


def metadata_partition(topic_id: UUID, partition: int, count: int) -> int:
    """The partition of `__remote_log_metadata`, of `count`, that has the records of a partition."""
    number = topic_id.int
    high, low = number >> 64, number & ((1 << 64) - 1)
    # Java's Objects.hash(topic id, partition number) of Kafka's TopicIdPartition without the topic's name
    hashed = 1
    for part in (_java_long_hash(low), _java_long_hash(high), partition):
        hashed = (31 * hashed + part) & _MASK_32
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _java_long_hash(value: int) -> int:
    return (value ^ (value >> 32)) & _MASK_32


def encode_metadata(message: Message) -> bytes:
    """The value of the record with `message`."""
    return bytes((_FRAME_VERSION, schema_of(message).key, 0)) + encode(message, 0)


def decode_metadata(value: Buffer) -> Message:
    """The message in the value of a record. Raises WireError."""
    if len(value) < _HEAD_BYTES or value[0] != _FRAME_VERSION:
        raise WireError(
            f"A record of {len(value)} bytes is not an event of a remote segment: it begins with "
            f"{bytes(value[:_HEAD_BYTES]).hex() or 'nothing'}."
        )
    kind = _RECORDS.get(value[1])
    if kind is None or value[2] != 0:
        raise WireError(
            f"Remote log metadata of type {value[1]} version {value[2]} is unknown: a newer program has written it."
        )
    try:
        return decode(kind, 0, value, _HEAD_BYTES)
    except (WireError, ValueError) as error:
        raise WireError(f"A {kind.__name__} cannot be read: {error}") from error
