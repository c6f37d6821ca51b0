"""Shell: ConsumerGroupDescribe (key 69), versions 0 to 1.

- 0: state, epochs, members and assignments of consumer groups (KIP-848)
- 1: the type of each member, classic or consumer, for a group that migrates between the protocols (KIP-1099)

A group of any other type is answered with GROUP_ID_NOT_FOUND. While the feature `group.version` is 0 every group is
answered with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.security.operations import GROUP_OPERATIONS
from barnabas.protocol.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from barnabas.server.broker.features import require_consumer_groups
from barnabas.server.broker.handlers.groups.port import GroupsPort
from barnabas.server.broker.request_context import RequestContext


async def handle(
    port: GroupsPort, ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    try:
        require_consumer_groups(port.metadata)
    except KafkaError as error:
        return ConsumerGroupDescribeResponse(
            groups=[
                DescribedGroup(group_id=group_id, error_code=error.code, error_message=str(error))
                for group_id in request.group_ids
            ]
        )
    response = await port.groups.consumer_group_describe(ctx, request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
