"""Shell: DeleteShareGroupOffsets (key 92), version 0.

- 0: deletes the share-partition state of topics from a share group (KIP-932)

The group must have no members. While the feature `share.version` is 0 the response is UNSUPPORTED_VERSION.
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
