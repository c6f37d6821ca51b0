"""Shell: AlterConfigs (key 33), versions 0 to 2.

- 0: replaces all configs of topics and brokers (KIP-133)
- 1: as 0
- 2: flexible

A config that the request does not name returns to its default, so IncrementalAlterConfigs supersedes this API
(KIP-339). The controller decides about each resource. Changes of this broker's listeners are checked here before.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.listener_configs import refused_listener_changes
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    refused = refused_listener_changes(port, ctx, request.resources, _altered)
    refusals = [_refusal(request.resources[index], error) for index, error in refused.items()]
    if refused:
        request.resources = [each for index, each in enumerate(request.resources) if index not in refused]
        if not request.resources:
            return AlterConfigsResponse(responses=refusals)
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return AlterConfigsResponse(
            responses=[
                *refusals,
                *(_refusal(resource, error) for resource in request.resources),
            ]
        )
    assert isinstance(response, AlterConfigsResponse)
    response.responses = [*refusals, *response.responses]
    return response


def _refusal(resource: AlterConfigsResource, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.detail,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _altered(resource: AlterConfigsResource, present: Mapping[str, str]) -> Mapping[str, str]:
    """The configs of a resource after its change, which replaces all of them."""
    return {config.name: config.value for config in resource.configs if config.value is not None}
