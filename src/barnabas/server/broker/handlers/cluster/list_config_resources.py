"""Shell: ListConfigResources (key 74), versions 0 to 1.

- 0: ListClientMetricsResources: the names of client-metrics subscriptions (KIP-714)
- 1: resources of the listed types, or of all types if the list is empty (KIP-1142)

All topics and brokers are listed, whether or not they have configs of their own. Groups and client-metrics
subscriptions are listed if they have configs. An unknown type is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import ClusterImage, ResourceType

_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


async def handle(
    port: ClusterPort, ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    kinds: list[int]
    if ctx.api_version == 0:
        kinds = [ResourceType.CLIENT_METRICS]
    elif request.resource_types:
        kinds = sorted(set(request.resource_types))
        if any(kind not in _LISTED for kind in kinds):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    else:
        kinds = list(_LISTED)
    image = port.metadata.image
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for kind in kinds for name in _names(image, kind)
        ]
    )


def _names(image: ClusterImage, kind: int) -> list[str]:
    match kind:
        case ResourceType.TOPIC:
            return image.topics.names()
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker.broker_id) for broker in image.brokers]
        case _:
            return image.configs.names(kind)
