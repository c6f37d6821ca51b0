"""Table: ExpireDelegationToken (key 40) expires a delegation token, now or at a given time."""

from __future__ import annotations

from barnabas.protocol.wire.schema import Request, Response, binary, int16, int32, int64


class ExpireDelegationTokenRequest(Request, key=40, versions="0-2", flexible="2+"):
    hmac: bytes = binary(sensitive=True)
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Response, key=40, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
