"""Table: DescribeQuorum (key 55).

Returns the leader, the voters and the observers of the metadata quorum, and the log end offset of each.
"""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class PartitionData(MessageStruct):
    partition_index: int = int32()


class TopicData(MessageStruct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = array(TopicData)


class ReplicaState(MessageStruct):
    replica_id: int = int32()
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class PartitionDataResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", null="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicDataResponse(MessageStruct):
    topic_name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class Listener(MessageStruct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(MessageStruct):
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = string("2+", null="2+", ignorable=True)
    topics: list[TopicDataResponse] = array(TopicDataResponse)
    nodes: list[Node] = array(Node, "2+")
