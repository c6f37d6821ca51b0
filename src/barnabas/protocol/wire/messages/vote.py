"""Table: Vote (key 52) requests a vote, or a pre-vote, in the metadata quorum."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class PartitionData(MessageStruct):
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: UUID = uuid("1+", ignorable=True)
    voter_directory_id: UUID = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


class TopicData(MessageStruct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class VoteRequest(Request, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = string(null="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)


class PartitionDataResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class TopicDataResponse(MessageStruct):
    topic_name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class NodeEndpoint(MessageStruct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    error_code: int = int16()
    topics: list[TopicDataResponse] = array(TopicDataResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
