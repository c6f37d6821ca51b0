"""Table: DescribeDelegationToken (key 41) lists delegation tokens by owner."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, binary, int16, int32, int64, string


class DescribeDelegationTokenOwner(MessageStruct):
    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Request, key=41, versions="0-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, null="0+")


class DescribedDelegationTokenRenewer(MessageStruct):
    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(MessageStruct):
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary(sensitive=True)
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Response, key=41, versions="0-3", flexible="2+"):
    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
