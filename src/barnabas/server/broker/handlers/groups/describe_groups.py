"""Shell: DescribeGroups (key 15), versions 0 to 6.

- 0: state, protocol and members of classic groups
- 1: throttle time in the response
- 2: as 1
- 3: authorized operations on request (KIP-430)
- 4: the members' group instance ids (KIP-345)
- 5: flexible
- 6: GROUP_ID_NOT_FOUND with a message for an unknown group; older versions report it in the state Dead (KIP-1043)
"""

from __future__ import annotations

from barnabas.protocol.security.operations import GROUP_OPERATIONS
from barnabas.protocol.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.server.broker.handlers.groups.port import GroupsPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: GroupsPort, ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    response = await port.groups.describe_groups(ctx, request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
