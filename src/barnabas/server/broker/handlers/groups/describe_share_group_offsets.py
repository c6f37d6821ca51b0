"""Shell: DescribeShareGroupOffsets (key 90), versions 0 to 1.

- 0: the share-partition start offset of each partition of share groups (KIP-932)
- 1: the lag: the number of records whose delivery is not complete (KIP-1226)

While the feature `share.version` is 0 every group is answered with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.handlers.groups.port import GroupsPort
from barnabas.server.broker.request_context import RequestContext


async def handle(
    port: GroupsPort, ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    try:
        require_share_groups(port.metadata)
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponse(
            groups=[
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, error_code=error.code, error_message=str(error)
                )
                for group in request.groups
            ]
        )
    return await port.share_groups.describe_share_group_offsets(ctx, request)
