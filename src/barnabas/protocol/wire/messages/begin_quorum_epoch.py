"""Table: BeginQuorumEpoch (key 53) notifies the voters of the metadata quorum of the leader of a new epoch."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, string, uint16, uuid


class PartitionData(MessageStruct):
    partition_index: int = int32()
    voter_directory_id: UUID = uuid("1+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicData(MessageStruct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(MessageStruct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = string(null="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class PartitionDataResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicDataResponse(MessageStruct):
    topic_name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class NodeEndpoint(MessageStruct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    error_code: int = int16()
    topics: list[TopicDataResponse] = array(TopicDataResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
