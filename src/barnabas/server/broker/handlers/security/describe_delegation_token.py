"""Shell: DescribeDelegationToken (key 41), versions 1 to 3.

- 1: lists delegation tokens, with their HMACs (KIP-48)
- 2: flexible
- 3: the client that has requested a token for its owner (KIP-373)

The response is made from this node's image. Without a list of owners it contains the tokens of all owners, with an
empty list none. A token belongs to the owners of the request if one of them is its owner, its requester or a renewer.
With an authorizer, `authorization/guards/tokens.py` leaves out the tokens that the client may not see.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.work import Pauses
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.token_requests import NO_PRINCIPAL, has_requesters, may_manage_tokens
from barnabas.server.metadata.image.cluster import DelegationTokenImage


async def handle(
    port: SecurityPort, ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    if not may_manage_tokens(ctx):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret_key = port.static_config.get("delegation.token.secret.key")
    if not secret_key:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
        if not owners:
            return DescribeDelegationTokenResponse()
    pauses = Pauses()
    found: list[DescribedDelegationToken] = []
    for _, token in sorted(port.metadata.image.tokens.by_id.items()):
        if owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            found.append(_described(token, secret_key, with_requester=has_requesters(ctx)))
        await pauses.after(1 + len(token.renewers))
    return DescribeDelegationTokenResponse(tokens=found)


def _described(token: DelegationTokenImage, secret_key: str, *, with_requester: bool) -> DescribedDelegationToken:
    # Imported here: a node without tokens does not need OpenSSL.
    from barnabas.protocol.security.delegation_tokens import hmac_of_token

    owner = _principal(token.owner)
    requester = _principal(token.requester) if with_requester else NO_PRINCIPAL
    renewers = map(_principal, token.renewers)
    return DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac_of_token(secret_key, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.kind, principal_name=renewer.name)
            for renewer in renewers
        ],
    )


def _principal(text: str) -> KafkaPrincipal:
    kind, _, name = text.partition(":")
    return KafkaPrincipal(kind, name)
