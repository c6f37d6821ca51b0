"""Shell: AlterConfigs (key 33), versions 0 to 2. Deprecated since KIP-339, but old tools still send it.

Replaces *all* configs of each resource by those given: what is not named goes back to its default. Decided by the
controller.
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
