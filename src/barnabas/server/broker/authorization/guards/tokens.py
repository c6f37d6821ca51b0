"""Machine: the authorization of requests about delegation tokens (KIP-48, KIP-373). A guard has the form that
`topics.py` describes."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.work import Pauses
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.server.broker.authorization.checks import DELEGATION_TOKEN, USER, ClientRights
from barnabas.server.broker.authorization.outcomes import Narrowed, Outcome
from barnabas.server.broker.authorization.ports import GuardPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.token_requests import may_manage_tokens, refused_token
from barnabas.server.metadata.controller.delegation_tokens import owner_of

_O = AclOperation


def create_delegation_token(
    port: GuardPort, auth: ClientRights, request: CreateDelegationTokenRequest, ctx: RequestContext
) -> Outcome:
    """A client needs no right to create tokens for itself."""
    if not may_manage_tokens(ctx):
        return None  # the handler answers that this connection does not allow it
    owner = owner_of(request, ctx.principal)
    if owner == ctx.principal or auth.allows(_O.CREATE_TOKENS, USER, str(owner)):
        return None
    return refused_token(ctx, request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


def describe_delegation_token(
    port: GuardPort, auth: ClientRights, request: DescribeDelegationTokenRequest, ctx: RequestContext
) -> Outcome:
    """A client sees the tokens that it owns, has requested or may renew, and those for which it has a right."""
    me = str(ctx.principal)
    tokens = port.metadata.image.tokens.by_id  # the response of an early version lacks the requesters

    def is_visible(token_id: str) -> bool:
        token = tokens.get(token_id)
        return token is not None and (
            me in (token.owner, token.requester, *token.renewers)
            or auth.allows(_O.DESCRIBE, DELEGATION_TOKEN, token_id, silent=True)
            or auth.allows(_O.DESCRIBE_TOKENS, USER, token.owner, silent=True)
        )

    async def complete(response: DescribeDelegationTokenResponse) -> DescribeDelegationTokenResponse:
        pauses = Pauses()
        visible: list[DescribedDelegationToken] = []
        for token in response.tokens:
            if is_visible(token.token_id):
                visible.append(token)
            await pauses.after(2 + len(token.renewers))
        response.tokens = visible
        return response

    return Narrowed(complete, is_slow=True)
