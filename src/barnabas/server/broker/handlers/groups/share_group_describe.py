"""Shell: ShareGroupDescribe (key 77, version 1).

Members, epochs and assignments of share groups; groups of other kinds are GROUP_ID_NOT_FOUND here.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.security.operations import GROUP_OPERATIONS
from barnabas.protocol.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    try:
        require_share_groups(services)
    except KafkaError as error:
        return ShareGroupDescribeResponse(
            groups=[
                DescribedGroup(group_id=group_id, error_code=error.code, error_message=str(error))
                for group_id in request.group_ids
            ]
        )
    response = await services.shares.groups.share_group_describe(ctx, request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
