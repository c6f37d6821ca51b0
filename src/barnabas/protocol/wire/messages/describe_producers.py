"""Table: DescribeProducers (key 61) shows the active idempotent and transactional producers of partitions."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, int64, string


class TopicRequest(MessageStruct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(MessageStruct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(MessageStruct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
