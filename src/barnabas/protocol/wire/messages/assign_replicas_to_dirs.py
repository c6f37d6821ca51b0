"""Table: AssignReplicasToDirs (key 73).

Notifies the controller of the data directories that hold a broker's replicas (KIP-858).
"""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, int64, uuid


class PartitionData(MessageStruct):
    partition_index: int = int32()


class TopicData(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(MessageStruct):
    id: UUID = uuid()
    topics: list[TopicData] = array(TopicData)


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class PartitionDataResponse(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()


class TopicDataResponse(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class DirectoryDataResponse(MessageStruct):
    id: UUID = uuid()
    topics: list[TopicDataResponse] = array(TopicDataResponse)


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryDataResponse] = array(DirectoryDataResponse)
