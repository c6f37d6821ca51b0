"""Shell: SyncGroup (key 14), versions 0 to 5.

The leader hands in the assignment, everyone gets their part; parked until the leader has come. 3 static members,
5 protocol type and name.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    return await services.groups.sync_group(ctx, request)
