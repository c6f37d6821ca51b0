"""Shell: Heartbeat (key 12), versions 0 to 4.

- 0: renews the session of a member of a classic group
- 1: throttle time in the response
- 2: as 1
- 3: group instance id of a static member (KIP-345)
- 4: flexible

The response is sent at once. REBALANCE_IN_PROGRESS requests the member to rejoin.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    return await services.groups.heartbeat(ctx, request)
