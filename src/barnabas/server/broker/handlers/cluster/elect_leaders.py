"""Shell: ElectLeaders (key 43, versions 0 to 2).

Gives partitions their preferred leader (type 0), or any surviving replica (type 1, which may lose records). Decided by
the controller. No partitions means all of them.
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
