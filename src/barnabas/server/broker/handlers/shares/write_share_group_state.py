"""Shell: WriteShareGroupState (key 85), versions 0 to 1.

- 0: the share coordinator writes changes of the state of share partitions (KIP-932)
- 1: the number of records after the start offset whose delivery is complete (KIP-1226)

The leaders of the partitions send this request.
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
