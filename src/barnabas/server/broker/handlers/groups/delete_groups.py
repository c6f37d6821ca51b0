"""Shell: DeleteGroups (key 42), versions 0 to 2.

Deletes empty groups with their offsets (KIP-229); of share groups the share coordinators are told first, and a crash in
between leaves a group that can be deleted again.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    await services.shares.groups.delete_states(request.groups_names)
    return await services.groups.delete_groups(ctx, request)
