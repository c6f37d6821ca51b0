"""Shell: LeaveGroup (key 13), versions 0 to 5.

One member leaves; since version 3 several, by member or instance id (KIP-345). 5 carries a reason.
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


async def handle(services: Services, ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    return await services.groups.leave_group(ctx, request)
