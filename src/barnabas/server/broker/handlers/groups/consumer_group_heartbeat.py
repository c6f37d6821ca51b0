"""Shell: ConsumerGroupHeartbeat (key 68, versions 0 to 1).

The one request of the new group protocol (KIP-848): join, keep alive, subscribe, tell what is owned, learn what is
assigned, leave. Answered when what it changed is in the log. Version 1 adds regular expressions matched on the server,
and member ids made by the client.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.server.broker.features import require_consumer_groups
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    require_consumer_groups(services)
    return await services.groups.consumer_group_heartbeat(ctx, request)
