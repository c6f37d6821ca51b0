"""Table: WriteShareGroupState (key 85) persists the delivery state of share partitions."""

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


class StateBatch(MessageStruct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(MessageStruct):
    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+"):
    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(MessageStruct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


class WriteStateResult(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = array(WriteStateResult)
