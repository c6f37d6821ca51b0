"""Table: StreamsGroupHeartbeat (key 88).

Joins and leaves a streams group, keeps a member alive and updates the tasks assigned to the member (KIP-1071).
"""

from __future__ import annotations

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    string,
    uint16,
)


class KeyValue(MessageStruct):
    key: str = string()
    value: str = string()


class TopicInfo(MessageStruct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Endpoint(MessageStruct):
    host: str = string()
    port: int = uint16()


class TaskOffset(MessageStruct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(MessageStruct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class CopartitionGroup(MessageStruct):
    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


class Subtopology(MessageStruct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(MessageStruct):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(null="0+", default=None)
    rack_id: str | None = string(null="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = nested(Topology, null="0+", default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, null="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, null="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, null="0+", default=None)
    process_id: str | None = string(null="0+", default=None)
    user_endpoint: Endpoint | None = nested(Endpoint, null="0+", default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, null="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, null="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, null="0+", default=None)
    shutdown_application: bool = boolean()


class Status(MessageStruct):
    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(MessageStruct):
    topic: str = string()
    partitions: list[int] = array(int32)


class EndpointToPartitions(MessageStruct):
    user_endpoint: Endpoint = nested(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, null="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, null="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, null="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, null="0+", default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, null="0+", default=None
    )
