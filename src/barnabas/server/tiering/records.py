"""Codec: the events of remote segments <-> the values of records in `__remote_log_metadata`, in Kafka's format
(`protocol/wire/remote_log_metadata.py`).
"""

from __future__ import annotations

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire import remote_log_metadata
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.remote_log_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode_metadata,
    encode_metadata,
)
from barnabas.protocol.wire.schema import Message
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


def metadata_partition(partition: RemotePartition, count: int) -> int:
    """The partition of `__remote_log_metadata`, of `count`, that has the events of `partition`."""
    return remote_log_metadata.metadata_partition(partition.topic_id, partition.partition, count)


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
    return encode_metadata(message)


def decode_event(value: Buffer) -> RemoteLogEvent:
    """The event in the value of a record. Raises RemoteMetadataError."""
    try:
        return _event(decode_metadata(value))
    except (WireError, ValueError) as error:
        raise RemoteMetadataError(str(error)) from error


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
