"""Shell: OffsetDelete (key 47), version 0.

Deletes committed offsets of partitions the group does not subscribe to (KIP-496).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    return await services.groups.offset_delete(ctx, request)
