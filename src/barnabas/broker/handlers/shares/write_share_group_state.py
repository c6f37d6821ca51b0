"""Shell: WriteShareGroupState (key 85, versions 0 to 1).

The leader of a partition remembers what became of records. Version 1 counts those done with (KIP-1226).
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse


async def handle(
    services: Services, ctx: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    return await services.shares.coordinator.write_share_group_state(request)
