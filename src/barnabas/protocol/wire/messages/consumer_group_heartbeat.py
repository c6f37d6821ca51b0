"""Table: ConsumerGroupHeartbeat (key 68).

Joins and leaves a group, keeps a member alive and updates its assignment (KIP-848).
"""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, nested, string, uuid


class TopicPartitions(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(null="0+", default=None)
    rack_id: str | None = string(null="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, null="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", null="1+", default=None)
    server_assignor: str | None = string(null="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null="0+", default=None)


class Assignment(MessageStruct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    member_id: str | None = string(null="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, null="0+", default=None)
