"""Shell: AlterConfigs (key 33), versions 0 to 2.

- 0: replaces all configs of topics and brokers (KIP-133)
- 1: as 0
- 2: flexible

A config that the request does not name returns to its default, so IncrementalAlterConfigs supersedes this API
(KIP-339). The controller decides about each resource.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.detail,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ]
        )
    assert isinstance(response, AlterConfigsResponse)
    return response
