"""Shell: IncrementalAlterConfigs (key 44), versions 0 to 1.

- 0: SET, DELETE, and for lists APPEND and SUBTRACT single configs (KIP-339)
- 1: flexible

The controller decides. The changes of one resource are applied together or not at all. A resource of type BROKER_LOGGER
is for the node that receives the request (`broker/broker_loggers.py`). Changes of this broker's listeners are checked
here before the controller decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.core.errors import KafkaError
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.broker.authorization.checks import CLUSTER, ClientRights
from barnabas.server.broker.authorization.grants import grants_of
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.broker.broker_loggers import alter_loggers
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.listener_configs import refused_listener_changes
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.controller.alter_configs import ConfigOperation, edit_list
from barnabas.server.metadata.image.cluster import ResourceType
from barnabas.server.metadata.image.small import ConfigResourceKey


async def handle(
    port: AdminPort, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    answered = _alter_loggers(port, ctx, request)
    refused = refused_listener_changes(port, ctx, request.resources, _altered)
    if refused:
        answered += [_refusal(request.resources[index], error) for index, error in refused.items()]
        request.resources = [each for index, each in enumerate(request.resources) if index not in refused]
    if answered and not request.resources:
        return IncrementalAlterConfigsResponse(responses=answered)
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        failed = [_refusal(resource, error) for resource in request.resources]
        return IncrementalAlterConfigsResponse(responses=[*answered, *failed])
    assert isinstance(response, IncrementalAlterConfigsResponse)
    response.responses = [*answered, *response.responses]
    return response


def _alter_loggers(
    port: AdminPort, ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> list[AlterConfigsResourceResponse]:
    """Change the levels of this node's loggers, and remove their resources from the request. A request that a broker
    has forwarded has no such resources."""
    if ctx.is_forwarded:
        return []
    resources = [resource for resource in request.resources if resource.resource_type == ResourceType.BROKER_LOGGER]
    if not resources:
        return []
    request.resources = [each for each in request.resources if each.resource_type != ResourceType.BROKER_LOGGER]
    authorizer = port.authorizer
    is_allowed = authorizer is None or _may_alter(authorizer, ctx)
    return [
        alter_loggers(resource, port.node_id, is_allowed=is_allowed, validate_only=request.validate_only)
        for resource in resources
    ]


def _refusal(resource: AlterConfigsResource, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.detail,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _altered(resource: AlterConfigsResource, present: Mapping[str, str]) -> Mapping[str, str]:
    """The configs of a resource after its change."""
    after = dict(present)
    for config in resource.configs:
        match config.config_operation:
            case ConfigOperation.SET if config.value is not None:
                after[config.name] = config.value
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT if config.value is not None:
                key = ConfigResourceKey(resource.resource_type, resource.resource_name)
                after[config.name] = edit_list(key, config, present.get(config.name))
            case _:
                after.pop(config.name, None)
    return after


def _may_alter(authorizer: Authorizer, ctx: RequestContext) -> bool:
    return ClientRights(authorizer, grants_of(authorizer), ctx).allows(AclOperation.ALTER_CONFIGS, CLUSTER)
