"""Shell: DeleteGroups (key 42), versions 0 to 2.

- 0: deletes groups without members, with their offsets (KIP-229)
- 1: as 0
- 2: flexible

For a share group the state of its share partitions is deleted first, at the share coordinators. If that fails, or the
broker crashes between the two steps, the group is kept and can be deleted again.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return await services.shares.groups.delete_groups(ctx, request, services.groups.delete_groups)
