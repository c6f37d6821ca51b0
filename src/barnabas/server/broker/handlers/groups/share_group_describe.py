"""Shell: ShareGroupDescribe (key 77), version 1.

- 1: state, epochs, members and assignments of share groups (KIP-932)

A group of any other type is answered with GROUP_ID_NOT_FOUND. While the feature `share.version` is 0 every group is
answered with UNSUPPORTED_VERSION. Version 0 was Kafka's early-access version and is not served.
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
from barnabas.server.broker.handlers.groups.port import GroupsPort
from barnabas.server.broker.request_context import RequestContext


async def handle(
    port: GroupsPort, ctx: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    try:
        require_share_groups(port.metadata)
    except KafkaError as error:
        return ShareGroupDescribeResponse(
            groups=[
                DescribedGroup(group_id=group_id, error_code=error.code, error_message=str(error))
                for group_id in request.group_ids
            ]
        )
    response = await port.share_groups.share_group_describe(ctx, request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
