"""Table: LeaveGroup (key 13) removes members from a classic group at once."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, string


class MemberIdentity(MessageStruct):
    member_id: str = string()
    group_instance_id: str | None = string(null="3+", default=None)
    reason: str | None = string("5+", null="5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(MessageStruct):
    member_id: str = string()
    group_instance_id: str | None = string(null="3+")
    error_code: int = int16()


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
