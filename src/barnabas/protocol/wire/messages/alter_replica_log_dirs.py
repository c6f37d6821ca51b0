"""Table: AlterReplicaLogDirs (key 34) moves replicas between the data directories of a broker."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, string


class AlterReplicaLogDirTopic(MessageStruct):
    name: str = string()
    partitions: list[int] = array(int32)


class AlterReplicaLogDir(MessageStruct):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Request, key=34, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(MessageStruct):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Response, key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
