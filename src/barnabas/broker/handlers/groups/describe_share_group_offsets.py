"""Shell: DescribeShareGroupOffsets (key 90, versions 0 to 1).

Where share groups start in each partition; version 1 tells how many records are left (KIP-1226).
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)


async def handle(
    services: Services, ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return await services.shares.groups.describe_share_group_offsets(ctx, request)
