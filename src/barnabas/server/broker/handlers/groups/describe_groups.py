"""Shell: DescribeGroups (key 15), versions 0 to 6.

State, protocol and members of classic groups. 3 authorized operations, 4 static members, 6 says GROUP_ID_NOT_FOUND
instead of calling an unknown group Dead (KIP-1043).
"""

from __future__ import annotations

from barnabas.protocol.security.operations import GROUP_OPERATIONS
from barnabas.protocol.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    response = await services.groups.describe_groups(ctx, request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
