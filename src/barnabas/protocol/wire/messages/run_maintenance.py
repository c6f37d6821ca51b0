"""Table: RunMaintenance (key 10002, not in Kafka) compacts partitions or enforces retention, and reports the result."""

from __future__ import annotations

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
)


class TopicRequest(MessageStruct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class RunMaintenanceRequest(Request, key=10002, versions="0", flexible="0+"):
    operation: int = int8()
    roll: bool = boolean()
    force: bool = boolean()
    dry_run: bool = boolean()
    topics: list[TopicRequest] = array(TopicRequest)


class PartitionResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    done: bool = boolean()
    verdict: str = string()
    detail: str = string()
    bytes_before: int = int64()
    bytes_after: int = int64()
    segments_before: int = int32()
    segments_after: int = int32()
    segments_deleted: int = int32()
    records_read: int = int64()
    records_kept: int = int64()
    dirty_ratio: float = float64()
    cleaned_offset: int = int64()
    log_start_offset: int = int64()
    seconds: float = float64()


class TopicResponse(MessageStruct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class RunMaintenanceResponse(Response, key=10002, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
