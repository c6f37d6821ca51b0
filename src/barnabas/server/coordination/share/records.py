"""Table: the records of `__share_group_state`, as Apache Kafka 4.3 reads and writes them.

Fields are those of share-coordinator/src/main/resources/common/message. A snapshot record has the whole state of a
share partition; an update record has the changes since then. A snapshot key without a value deletes the share
partition.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from barnabas.protocol.wire.schema import Message, MessageStruct, array, int8, int16, int32, int64, string, uuid
from barnabas.server.coordination.log_format import LogFormat, RecordKind


class ShareSnapshotKey(Message, versions="0"):
    """Kind 0: the whole state of a share partition."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class StateBatchSchema(MessageStruct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatchSchema] = array(StateBatchSchema)


class ShareUpdateKey(Message, versions="0"):
    """Kind 1: the changes of a share partition since its last snapshot."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    state_batches: list[StateBatchSchema] = array(StateBatchSchema)


FORMAT: Final = LogFormat(
    [
        RecordKind(0, ShareSnapshotKey, ShareSnapshotValue),
        RecordKind(1, ShareUpdateKey, ShareUpdateValue),
    ]
)
