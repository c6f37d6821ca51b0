"""Shell: DeleteShareGroupOffsets (key 92, version 0).

Forgets topics of a share group without members.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    require_share_groups(services)
    return await services.shares.groups.delete_share_group_offsets(ctx, request)
