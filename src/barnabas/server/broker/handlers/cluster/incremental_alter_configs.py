"""Shell: IncrementalAlterConfigs (key 44), versions 0 to 1.

- 0: SET, DELETE, and for lists APPEND and SUBTRACT single configs (KIP-339)
- 1: flexible

The controller decides. The changes of one resource are applied together or not at all. A resource of type BROKER_LOGGER
is for the node that receives the request (`broker/broker_loggers.py`).
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.broker.authorization.checks import CLUSTER, ClientRights
from barnabas.server.broker.broker_loggers import alter_loggers
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.metadata.image.cluster import ResourceType


async def handle(
    services: Services, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    loggers = _alter_loggers(services, ctx, request)
    if loggers and not request.resources:
        return IncrementalAlterConfigsResponse(responses=loggers)
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        failed = [
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.detail,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
        return IncrementalAlterConfigsResponse(responses=[*loggers, *failed])
    assert isinstance(response, IncrementalAlterConfigsResponse)
    response.responses = [*loggers, *response.responses]
    return response


def _alter_loggers(
    services: Services, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> list[AlterConfigsResourceResponse]:
    """Change the levels of this node's loggers, and remove their resources from the request. A request that a broker
    has forwarded has no such resources."""
    if ctx.is_forwarded:
        return []
    resources = [resource for resource in request.resources if resource.resource_type == ResourceType.BROKER_LOGGER]
    if not resources:
        return []
    request.resources = [each for each in request.resources if each.resource_type != ResourceType.BROKER_LOGGER]
    authorizer = services.authorizer
    is_allowed = authorizer is None or ClientRights(authorizer, ctx).allows(AclOperation.ALTER_CONFIGS, CLUSTER)
    return [
        alter_loggers(resource, services.node_id, is_allowed=is_allowed, validate_only=request.validate_only)
        for resource in resources
    ]
