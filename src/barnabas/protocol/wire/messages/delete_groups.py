"""Table: DeleteGroups (key 42) deletes groups that have no members."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, string


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(string)


class DeletableGroupResult(MessageStruct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
