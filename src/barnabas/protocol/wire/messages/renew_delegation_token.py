"""Table: RenewDelegationToken (key 39) prolongs a delegation token."""

from __future__ import annotations

from barnabas.protocol.wire.schema import Request, Response, binary, int16, int32, int64


class RenewDelegationTokenRequest(Request, key=39, versions="0-2", flexible="2+"):
    hmac: bytes = binary(sensitive=True)
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response, key=39, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
