"""Shell: ExplainGroup (key 10001, ours), version 0.

Why a group rebalances: since when, what began it, which members have not done their part yet and how long they have;
and what will become of its offsets. Only the group's coordinator answers. Looks, and changes nothing.
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.messages.explain_group import ExplainGroupRequest, ExplainGroupResponse


async def handle(services: Services, ctx: RequestContext, request: ExplainGroupRequest) -> ExplainGroupResponse:
    return await services.groups.explain_group(ctx, request)
