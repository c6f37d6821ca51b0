"""Shell: OffsetFetch (key 9), versions 1 to 10.

- 1: committed offsets of the listed partitions, from `__consumer_offsets`
- 2: the offsets of all partitions, if the list is null; a top-level error code
- 3: throttle time in the response
- 4: as 3
- 5: leader epoch of each committed offset (KIP-320)
- 6: flexible
- 7: RequireStable, with UNSTABLE_OFFSET_COMMIT while a transaction has offsets pending (KIP-447)
- 8: several groups in one request (KIP-709)
- 9: member id and member epoch of the consumer group protocol (KIP-848)
- 10: topic ids in place of names (KIP-848)

A partition without a committed offset has offset -1 and no error.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    return await services.groups.offset_fetch(ctx, request)
