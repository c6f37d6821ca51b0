"""Table: ShareGroupHeartbeat (key 76).

Joins and leaves a share group, keeps a member alive and updates its assignment (KIP-932).
"""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, nested, string, uuid


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(null="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, null="0+", default=None)


class TopicPartitions(MessageStruct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class Assignment(MessageStruct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    member_id: str | None = string(null="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, null="0+", default=None)
