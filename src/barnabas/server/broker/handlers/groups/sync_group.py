"""Shell: SyncGroup (key 14), versions 0 to 5.

- 0: distributes the assignment of a classic group
- 1: throttle time in the response
- 2: as 1
- 3: group instance id of a static member (KIP-345)
- 4: flexible
- 5: protocol type and name, which must be those of the group (KIP-559)

The leader of the group sends the assignments of all members. The response to another member is delayed by the group
coordinator until the leader has sent them.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    return await services.groups.sync_group(ctx, request)
