"""Shell: JoinGroup (key 11), versions 0 to 9.

Joins a classic group. Parked by the coordinator until the rebalance completes or times out, so the answer may be long
in coming. Versions: 4 asks new members to come back with the id they are given (KIP-394), 5 static members (KIP-345),
7 protocol type, 8 reason, 9 skip_assignment.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    return await services.groups.join_group(ctx, request)
