"""Shell: ReadShareGroupStateSummary (key 87), versions 0 to 1.

- 0: the share coordinator returns the start offsets of share partitions without the state of their records (KIP-932)
- 1: the number of records after the start offset whose delivery is complete (KIP-1226)

Group coordinators send this request.
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
