"""Shell: AllocateProducerIds (key 67), version 0.

- 0: allocates a block of 1,000 producer ids to one broker (KIP-730)

The controller writes the end of the block to the metadata log before the broker uses an id. Ids that the broker has
not used when it stops are lost.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: AllocateProducerIdsRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
