"""Shell: AllocateProducerIds (key 67), version 0.

A block of a thousand producer ids for one broker (KIP-730); what it does not use is lost.
"""

from __future__ import annotations

from barnabas.broker.controller_services import ControllerServices
from barnabas.broker.request_context import RequestContext
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.schema import Message


async def handle(services: ControllerServices, ctx: RequestContext, request: AllocateProducerIdsRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
