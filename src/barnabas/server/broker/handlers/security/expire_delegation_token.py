"""Shell: ExpireDelegationToken (key 40), versions 1 and 2.

- 1: lets a delegation token expire at another time, or removes it (KIP-48)
- 2: flexible

The controller decides. Only the owner and the renewers of the token may let it expire.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.broker.token_requests import ERROR_TIMESTAMP, may_manage_tokens


async def handle(
    services: Services, ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    if not may_manage_tokens(ctx):
        return _refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return _refused(error.code)
    assert isinstance(response, ExpireDelegationTokenResponse)
    return response


def _refused(code: ErrorCode) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=ERROR_TIMESTAMP)
