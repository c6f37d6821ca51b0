"""Shell: CreateDelegationToken (key 38), versions 1 to 3.

- 1: creates a delegation token for the client (KIP-48)
- 2: flexible
- 3: an owner other than the client (KIP-373), which needs CREATE_TOKENS on the user

The controller decides. The response contains the HMAC of the token, which is its password.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.token_requests import has_requesters, may_manage_tokens, refused_token
from barnabas.server.metadata.controller.delegation_tokens import USER_TYPE, has_too_many_names


async def handle(
    port: SecurityPort, ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    if not may_manage_tokens(ctx):
        return refused_token(ctx, request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        return refused_token(ctx, request, ErrorCode.INVALID_PRINCIPAL_TYPE)
    if has_too_many_names(request):
        return refused_token(ctx, request, ErrorCode.INVALID_REQUEST)
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return refused_token(ctx, request, error.code)
    assert isinstance(response, CreateDelegationTokenResponse)
    if not has_requesters(ctx):
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response
