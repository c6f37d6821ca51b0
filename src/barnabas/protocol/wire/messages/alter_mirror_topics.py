"""Table: AlterMirrorTopics (key 10010, not in Kafka): changes of the metadata for cluster links.

A broker sends the request to the controller. It has one or more of: topics that are created with a given id, configs
`mirror.*`, leader epochs, and a bound below all producer ids that are handed out from now on.
"""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, int64, string, uuid


class MirrorConfig(MessageStruct):
    name: str = string()
    value: str | None = string(null="0+", default=None)


class NewMirrorTopic(MessageStruct):
    name: str = string()
    topic_id: UUID = uuid()
    num_partitions: int = int32()
    replication_factor: int = int16(default=-1)
    configs: list[MirrorConfig] = array(MirrorConfig)


class MirrorTopicConfigs(MessageStruct):
    name: str = string()
    configs: list[MirrorConfig] = array(MirrorConfig)


class MirrorLeaderEpoch(MessageStruct):
    topic_id: UUID = uuid()
    partition: int = int32()
    leader_epoch: int = int32()
    minimum: int = int32()


class AlterMirrorTopicsRequest(Request, key=10010, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    new_topics: list[NewMirrorTopic] = array(NewMirrorTopic)
    configs: list[MirrorTopicConfigs] = array(MirrorTopicConfigs)
    leader_epochs: list[MirrorLeaderEpoch] = array(MirrorLeaderEpoch)
    producer_ids_above: int = int64(default=-1)


class MirrorTopicResult(MessageStruct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


class AlterMirrorTopicsResponse(Response, key=10010, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    topics: list[MirrorTopicResult] = array(MirrorTopicResult)
