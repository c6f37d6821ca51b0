"""Table: ExplainGroup (key 10001, not in Kafka).

Returns the state of a group, the members for which the group waits, and the time after which it stops waiting.
"""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, int64, string


class ExplainGroupRequest(Request, key=10001, versions="0", flexible="0+"):
    group_ids: list[str] = array(string)


class Holding(MessageStruct):
    topic: str = string()
    partition: int = int32()
    member_id: str = string()


class Member(MessageStruct):
    member_id: str = string()
    instance_id: str | None = string(null="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    epoch: int = int32(default=-1)
    pending: str = string()
    session_left_ms: int = int64(default=-1)
    rebalance_left_ms: int = int64(default=-1)
    assigned_count: int = int32()
    target_count: int = int32()
    to_revoke: list[Holding] = array(Holding)
    awaited: list[Holding] = array(Holding)


class ExplainedGroup(MessageStruct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    now_ms: int = int64()
    group_type: str = string()
    protocol_type: str = string()
    state: str = string()
    state_since_ms: int = int64(default=-1)
    epoch: int = int32()
    assignment_epoch: int = int32(default=-1)
    assignor: str = string()
    leader_id: str | None = string(null="0+", default=None)
    phase: str = string()
    phase_left_ms: int = int64(default=-1)
    reason: str = string()
    members: list[Member] = array(Member)
    offset_count: int = int32()
    pending_offset_count: int = int32()
    kept_offset_count: int = int32()
    offsets_retention_ms: int = int64()
    first_offset_expiry_ms: int = int64(default=-1)
    next_offset_check_left_ms: int = int64(default=-1)


class ExplainGroupResponse(Response, key=10001, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[ExplainedGroup] = array(ExplainedGroup)
