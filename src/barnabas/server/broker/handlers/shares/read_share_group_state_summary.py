"""Shell: ReadShareGroupStateSummary (key 87, versions 0 to 1).

Where share partitions start, without their records. Version 1 counts those done with (KIP-1226).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    return await services.shares.coordinator.read_share_group_state_summary(request)
