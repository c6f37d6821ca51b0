"""Machine: the requests about delegation tokens that are refused before the controller decides (KIP-48).

A client that has logged in with a token may not create or prolong tokens: a stolen token must not live longer than its
owner wanted. A client that has not authenticated has no identity that could own tokens.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.controller.delegation_tokens import owner_of

ERROR_TIMESTAMP: Final = -1
"""The times in the response to a request that is refused before the controller has decided."""
NO_PRINCIPAL: Final = KafkaPrincipal("", "")
"""In place of the requester of a token, in versions that do not have it."""
_REQUESTERS_SINCE: Final = 3


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
