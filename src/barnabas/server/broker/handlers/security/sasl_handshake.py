"""Shell: SaslHandshake (key 17), versions 0 and 1, outside of authentication: it is refused with ILLEGAL_SASL_STATE.

- 0: messages without headers follow (KIP-43)
- 1: SaslAuthenticate requests follow (KIP-152)

On a listener with SASL, `protocol/transport/secure_connection.py` answers the request that begins an authentication. A
request gets here on a listener without SASL, or from a client that has authenticated and may not authenticate anew.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
