"""Shell: UpdateFeatures (key 57), versions 0 to 2.

- 0: raises or lowers the finalized levels of features such as metadata.version (KIP-584)
- 1: ValidateOnly changes nothing; the upgrade type, in place of AllowDowngrade (KIP-778)
- 2: without results for each feature in the response (KIP-1022)

The controller decides. All updates of a request are made or none.
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
