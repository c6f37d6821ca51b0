"""Shell: JoinGroup (key 11), versions 0 to 9.

- 0: joins a classic group
- 1: the rebalance timeout, separate from the session timeout
- 2: throttle time in the response
- 3: as 2
- 4: MEMBER_ID_REQUIRED gives a new member its id, with which it joins again (KIP-394)
- 5: group instance id of a static member (KIP-345)
- 6: flexible
- 7: the protocol type in the response (KIP-559)
- 8: the reason for joining (KIP-800)
- 9: SkipAssignment, with which the leader sends no assignment (KIP-814)

The response is delayed by the group coordinator until all members have joined or the rebalance timeout has passed.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    return await services.groups.join_group(ctx, request)
