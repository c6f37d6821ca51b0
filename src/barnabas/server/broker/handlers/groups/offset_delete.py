"""Shell: OffsetDelete (key 47), version 0.

- 0: deletes committed offsets of a group (KIP-496)

A topic to which the group is subscribed is answered with GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    return await services.groups.offset_delete(ctx, request)
