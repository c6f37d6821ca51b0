"""Shell: ShareGroupHeartbeat (key 76, version 1).

Members of share groups join, stay, subscribe and leave; the answer tells their partitions (KIP-932).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    require_share_groups(services)
    return await services.shares.groups.share_group_heartbeat(ctx, request)
