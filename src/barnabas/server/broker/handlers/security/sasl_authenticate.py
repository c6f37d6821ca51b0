"""Shell: SaslAuthenticate (key 36), versions 0 to 2, outside of authentication: it is refused with ILLEGAL_SASL_STATE.

- 0: one message of a SASL mechanism (KIP-152)
- 1: the lifetime of the session in the response (KIP-368)
- 2: flexible

On a listener with SASL, `protocol/transport/secure_connection.py` answers the requests of an authentication.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication, or without SaslHandshake.",
    )
