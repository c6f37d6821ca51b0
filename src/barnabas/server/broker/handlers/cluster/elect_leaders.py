"""Shell: ElectLeaders (key 43), versions 0 to 2.

- 0: elects the preferred leader of partitions (KIP-183)
- 1: election type 1: any live replica, which may lose records (KIP-460); a top-level error code
- 2: flexible

The controller decides. If the partitions are null the request is for all partitions.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return ElectLeadersResponse(error_code=error.code)
    assert isinstance(response, ElectLeadersResponse)
    return response
