"""Shell: DeleteShareGroupState (key 86, version 0).

The group coordinator has share partitions forgotten.
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse


async def handle(
    services: Services, ctx: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    return await services.shares.coordinator.delete_share_group_state(request)
