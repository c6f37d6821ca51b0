"""Shell: AlterShareGroupOffsets (key 91), version 0.

- 0: sets the share-partition start offsets of a share group (KIP-932)

The group must have no members. The group coordinator writes the new start offsets to the share coordinator with a new
state epoch, which fences the partition leaders that still hold the old state. While the feature `share.version` is 0
the response is UNSUPPORTED_VERSION.
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
