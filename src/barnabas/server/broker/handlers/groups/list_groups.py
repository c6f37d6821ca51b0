"""Shell: ListGroups (key 16), versions 0 to 5.

- 0: the groups that this broker coordinates
- 1: throttle time in the response
- 2: as 1
- 3: flexible
- 4: a filter by group state (KIP-518)
- 5: a filter by group type (KIP-848)
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    return await services.groups.list_groups(ctx, request)
