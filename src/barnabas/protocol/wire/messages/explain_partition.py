"""Table: ExplainPartition (key 10000, not in Kafka): last stable offset, compaction and retention of a partition."""

from __future__ import annotations

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    float64,
    int16,
    int32,
    int64,
    nested,
    string,
)


class TopicRequest(MessageStruct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class ExplainPartitionRequest(Request, key=10000, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest)


class OpenTransaction(MessageStruct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    first_offset: int = int64()
    first_timestamp: int = int64(default=-1)
    last_timestamp: int = int64(default=-1)
    transactional_id: str | None = string(null="0+", default=None)
    transaction_state: str | None = string(null="0+", default=None)
    coordinator_id: int = int32(default=-1)
    started_ms: int = int64(default=-1)
    timeout_ms: int = int32(default=-1)
    in_transaction: bool = boolean()


class LastPass(MessageStruct):
    ended_ms: int = int64()
    end_offset: int = int64()
    records_read: int = int64()
    records_kept: int = int64()
    bytes_read: int = int64()
    bytes_written: int = int64()
    seconds: float = float64()


class CleanerFailure(MessageStruct):
    reason: str = string()
    since_ms: int = int64()
    count: int = int32()
    retry_ms: int = int64()


class Compaction(MessageStruct):
    verdict: str = string()
    limit: str = string()
    detail: str = string()
    enabled: bool = boolean()
    running: bool = boolean()
    dirty_ratio: float = float64()
    min_dirty_ratio: float = float64()
    min_lag_ms: int = int64()
    max_lag_ms: int = int64()
    first_dirty_offset: int = int64()
    first_uncleanable_offset: int = int64()
    clean_bytes: int = int64()
    cleanable_bytes: int = int64()
    last_pass: LastPass | None = nested(LastPass, null="0+", default=None)
    failure: CleanerFailure | None = nested(CleanerFailure, null="0+", default=None)


class Retention(MessageStruct):
    verdict: str = string()
    retention_ms: int = int64()
    retention_bytes: int = int64()
    is_local: bool = boolean(tag=0)
    first_offset: int = int64()
    end_offset: int = int64()
    size: int = int64()
    is_active: bool = boolean()
    youngest_ms: int = int64(default=-1)
    expires_ms: int = int64(default=-1)
    excess_bytes: int = int64()
    check_interval_ms: int = int64()


class PartitionResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    now_ms: int = int64()
    leader_epoch: int = int32(default=-1)
    cleanup_policy: str = string()
    log_start_offset: int = int64()
    last_stable_offset: int = int64()
    high_watermark: int = int64()
    log_end_offset: int = int64()
    size_bytes: int = int64()
    segments: int = int32()
    producers: int = int32()
    open_transaction_count: int = int32()
    unreplicated_transaction_count: int = int32()
    open_transactions: list[OpenTransaction] = array(OpenTransaction)
    compaction: Compaction = nested(Compaction)
    retention: Retention = nested(Retention)


class TopicResponse(MessageStruct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class ExplainPartitionResponse(Response, key=10000, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
