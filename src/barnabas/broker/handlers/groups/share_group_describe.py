"""Shell: ShareGroupDescribe (key 77, version 1).

Members, epochs and assignments of share groups; groups of other kinds are GROUP_ID_NOT_FOUND here.
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.security.operations import GROUP_OPERATIONS
from barnabas.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse


async def handle(
    services: Services, ctx: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    response = await services.shares.groups.share_group_describe(ctx, request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
