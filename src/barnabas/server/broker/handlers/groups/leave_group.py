"""Shell: LeaveGroup (key 13), versions 0 to 5.

- 0: removes one member from a classic group
- 1: throttle time in the response
- 2: as 1
- 3: several members, by member id or group instance id (KIP-345)
- 4: flexible
- 5: the reason for leaving (KIP-800)
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    return await services.groups.leave_group(ctx, request)
