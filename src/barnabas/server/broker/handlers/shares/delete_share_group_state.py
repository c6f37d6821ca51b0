"""Shell: DeleteShareGroupState (key 86), version 0.

- 0: the share coordinator deletes the state of share partitions (KIP-932)

Group coordinators send this request.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    return await services.shares.coordinator.delete_share_group_state(request)
