"""Shell: ListGroups (key 16), versions 0 to 5.

All groups this broker coordinates. 4 filters by state (KIP-518), 5 by type (KIP-848).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    return await services.groups.list_groups(ctx, request)
