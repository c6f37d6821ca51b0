"""Shell: WriteShareGroupState (key 85, versions 0 to 1).

The leader of a partition remembers what became of records. Version 1 counts those done with (KIP-1226).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    return await services.shares.coordinator.write_share_group_state(request)
