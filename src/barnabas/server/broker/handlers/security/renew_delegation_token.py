"""Shell: RenewDelegationToken (key 39), versions 1 and 2.

- 1: prolongs a delegation token (KIP-48)
- 2: flexible

The controller decides. Only the owner and the renewers of the token may prolong it.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.broker.token_requests import change_expiry


async def handle(
    services: Services, ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    return await change_expiry(services, ctx, request, RenewDelegationTokenResponse)
