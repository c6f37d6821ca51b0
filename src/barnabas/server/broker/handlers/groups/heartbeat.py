"""Shell: Heartbeat (key 12), versions 0 to 4.

Keeps a member in its group, and tells it of a rebalance. Answered at once. 3 static members.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    return await services.groups.heartbeat(ctx, request)
