"""Table: ReadShareGroupState (key 84) reads the persisted state of share partitions when a leader takes over."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class PartitionData(MessageStruct):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+"):
    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(MessageStruct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(MessageStruct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = array(ReadStateResult)
