"""Shell: InitializeShareGroupState (key 83, version 0).

The group coordinator begins the state of share partitions, or begins it anew somewhere else.
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


async def handle(
    services: Services, ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    return await services.shares.coordinator.initialize_share_group_state(request)
