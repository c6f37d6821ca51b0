"""Shell: ReadShareGroupState (key 84), version 0.

- 0: the share coordinator returns the state of share partitions (KIP-932)

The leader of a partition sends this request when it begins to serve a share group. The request fences previous leaders.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    return await services.shares.coordinator.read_share_group_state(request)
