"""Shell: InitializeShareGroupState (key 83), version 0.

- 0: the share coordinator initializes the state of share partitions, or resets it to another start offset (KIP-932)

Group coordinators send this request.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    return await services.shares.coordinator.initialize_share_group_state(request)
