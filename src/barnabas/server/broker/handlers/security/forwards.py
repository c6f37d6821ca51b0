"""Shell: the handlers of logins and delegation tokens with few statements."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.token_requests import change_expiry


async def sasl_handshake(
    port: SecurityPort, ctx: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """SaslHandshake (key 17), versions 0 and 1, outside of authentication: it is refused with ILLEGAL_SASL_STATE.

    - 0: messages without headers follow (KIP-43)
    - 1: SaslAuthenticate requests follow (KIP-152)

    On a listener with SASL, `protocol/transport/secure_connection.py` answers the request that begins an
    authentication. A request gets here on a listener without SASL, or from a client that has authenticated and may not
    authenticate anew.
    """
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


async def sasl_authenticate(
    port: SecurityPort, ctx: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """SaslAuthenticate (key 36), versions 0 to 2, outside of authentication: it is refused with ILLEGAL_SASL_STATE.

    - 0: one message of a SASL mechanism (KIP-152)
    - 1: the lifetime of the session in the response (KIP-368)
    - 2: flexible

    On a listener with SASL, `protocol/transport/secure_connection.py` answers the requests of an authentication.
    """
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication, or without SaslHandshake.",
    )


async def renew_delegation_token(
    port: SecurityPort, ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """RenewDelegationToken (key 39), versions 1 and 2.

    - 1: prolongs a delegation token (KIP-48)
    - 2: flexible

    The controller decides. Only the owner and the renewers of the token may prolong it.
    """
    return await change_expiry(port, ctx, request, RenewDelegationTokenResponse)


async def expire_delegation_token(
    port: SecurityPort, ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """ExpireDelegationToken (key 40), versions 1 and 2.

    - 1: lets a delegation token expire at another time, or removes it (KIP-48)
    - 2: flexible

    The controller decides. Only the owner and the renewers of the token may let it expire.
    """
    return await change_expiry(port, ctx, request, ExpireDelegationTokenResponse)
