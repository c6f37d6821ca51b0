"""Shell: OffsetFetch (key 9), versions 1 to 10.

Committed offsets: of the named partitions, or of all. An offset that was never committed is -1, not an error.
2 all partitions, 7 `require_stable` (KIP-447), 8 several groups, 9 member epochs (KIP-848), 10 topic ids.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    return await services.groups.offset_fetch(ctx, request)
