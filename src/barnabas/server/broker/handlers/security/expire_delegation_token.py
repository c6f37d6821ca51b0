"""Shell: ExpireDelegationToken (key 40), versions 1 and 2.

- 1: lets a delegation token expire at another time, or removes it (KIP-48)
- 2: flexible

The controller decides. Only the owner and the renewers of the token may let it expire.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.broker.token_requests import change_expiry


async def handle(
    services: Services, ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return await change_expiry(services, ctx, request, ExpireDelegationTokenResponse)
