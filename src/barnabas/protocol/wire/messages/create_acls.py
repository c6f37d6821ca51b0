"""Table: CreateAcls (key 30) adds access rules."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int8, int16, int32, string


class AclCreation(MessageStruct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, key=30, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(MessageStruct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class CreateAclsResponse(Response, key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
