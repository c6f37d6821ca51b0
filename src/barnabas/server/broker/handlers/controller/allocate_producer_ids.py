"""Shell: AllocateProducerIds (key 67), version 0.

A block of a thousand producer ids for one broker (KIP-730); what it does not use is lost.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: AllocateProducerIdsRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
