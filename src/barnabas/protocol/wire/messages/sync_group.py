"""Table: SyncGroup (key 14) sends the leader's assignment to the coordinator, and returns each member's part of it."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, binary, int16, int32, string


class SyncGroupRequestAssignment(MessageStruct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None)
    protocol_type: str | None = string("5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", null="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", null="5+", default=None, ignorable=True)
    assignment: bytes = binary()
