"""Shell: UpdateFeatures (key 57, versions 0 to 2).

Raises or lowers the finalized level of features such as metadata.version (KIP-584). Decided by the controller: all
updates or none.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=str(error))
    assert isinstance(response, UpdateFeaturesResponse)
    return response
