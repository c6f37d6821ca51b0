"""Shell: ShareGroupHeartbeat (key 76), version 1.

- 1: the share group protocol (KIP-932)

A member joins its group, renews its session, changes its subscription, receives its partitions and leaves the group
with this one request. While the feature `share.version` is 0 the response is UNSUPPORTED_VERSION. Version 0 was
Kafka's early-access version and is not served.
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
