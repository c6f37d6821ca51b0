"""Shell: UnregisterBroker (key 64), version 0.

- 0: removes the registration of a broker that has left the cluster for good (KIP-631)

The controller decides.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=str(error))
    assert isinstance(response, UnregisterBrokerResponse)
    return response
