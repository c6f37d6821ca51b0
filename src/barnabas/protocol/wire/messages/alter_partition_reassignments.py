"""Table: AlterPartitionReassignments (key 45) starts or cancels partition reassignments."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, boolean, int16, int32, string


class ReassignablePartition(MessageStruct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, null="0+", default=None)


class ReassignableTopic(MessageStruct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class ReassignableTopicResponse(MessageStruct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
