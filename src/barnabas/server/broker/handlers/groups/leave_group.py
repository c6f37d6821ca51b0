"""Shell: LeaveGroup (key 13), versions 0 to 5.

One member leaves; since version 3 several, by member or instance id (KIP-345). 5 carries a reason.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    return await services.groups.leave_group(ctx, request)
