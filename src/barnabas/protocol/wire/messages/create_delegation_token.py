"""Table: CreateDelegationToken (key 38) issues a delegation token."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, binary, int16, int32, int64, string


class CreatableRenewers(MessageStruct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request, key=38, versions="0-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", null="3+")
    owner_principal_name: str | None = string("3+", null="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, key=38, versions="0-3", flexible="2+"):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary(sensitive=True)
    throttle_time_ms: int = int32()
