"""Shell: AlterShareGroupOffsets (key 91, version 0).

Moves a share group without members; leaders that still know the old state are fenced by a new state epoch.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    require_share_groups(services)
    return await services.shares.groups.alter_share_group_offsets(ctx, request)
