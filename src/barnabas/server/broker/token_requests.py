"""Shell: what the requests about delegation tokens have in common; the controller decides on them (KIP-48).

A client that has logged in with a token may not create or prolong tokens: a stolen token must not live longer than its
owner wanted. A client that has not authenticated has no identity that could own tokens.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from barnabas.protocol.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.controller.delegation_tokens import owner_of

ERROR_TIMESTAMP: Final = -1
"""The times in the response to a request that is refused before the controller has decided."""
NO_PRINCIPAL: Final = KafkaPrincipal("", "")
"""In place of the requester of a token, in versions that do not have it."""
_REQUESTERS_SINCE: Final = 3

ChangedT = TypeVar("ChangedT", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


def has_requesters(ctx: RequestContext) -> bool:
    """Whether the response can say who has requested a token (KIP-373)."""
    return ctx.api_version >= _REQUESTERS_SINCE


def may_manage_tokens(ctx: RequestContext) -> bool:
    """Whether the connection of the client allows requests about tokens (`KafkaApis.allowTokenRequests`). The broker
    that forwards a request has checked the protocol of its client's connection."""
    client = ctx.client
    if client.token_authenticated:
        return False
    if ctx.is_forwarded:
        return True
    if client.security_protocol == "PLAINTEXT":
        return False
    return client.security_protocol != "SSL" or client.principal != ANONYMOUS


async def change_expiry(port: SecurityPort, ctx: RequestContext, request: Any, response: type[ChangedT]) -> ChangedT:
    """The response to a request that prolongs a token or lets it expire: the controller's, unless the connection does
    not allow the request or the controller cannot be reached."""
    if not may_manage_tokens(ctx):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return response(error_code=code, expiry_timestamp_ms=ERROR_TIMESTAMP)
    try:
        found = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return response(error_code=error.code, expiry_timestamp_ms=ERROR_TIMESTAMP)
    assert isinstance(found, response)
    return found


def refused_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest, code: ErrorCode
) -> CreateDelegationTokenResponse:
    """The response to a CreateDelegationToken request that is refused."""
    owner = owner_of(request, ctx.principal)
    requester = ctx.principal if has_requesters(ctx) else NO_PRINCIPAL
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=ERROR_TIMESTAMP,
        expiry_timestamp_ms=ERROR_TIMESTAMP,
        max_timestamp_ms=ERROR_TIMESTAMP,
    )
