"""Shell: DescribeCluster (key 60), versions 0 to 2, asked of a controller (KIP-919).

The controllers, and which of them is the active one: an AdminClient with `bootstrap.controllers` finds its way by this.
A controller says where it is when it registers; before that, the quorum knows its voters' addresses.

Versions: 1 asks for a kind of endpoint, and only 2, controllers, is answered here.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.operations import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.protocol.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext

BROKERS = 1
CONTROLLERS = 2


async def handle(
    services: ControllerServices, ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != CONTROLLERS:
        known = request.endpoint_type == BROKERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=(
                "This endpoint belongs to a controller; ask a broker for brokers."
                if known
                else f"Unsupported endpoint type {request.endpoint_type}"
            ),
            endpoint_type=request.endpoint_type,
        )
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=services.cluster_id,
        controller_id=services.quorum.leader_id,
        brokers=_controllers(services, ctx.client.listener),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


def _controllers(services: ControllerServices, listener: str) -> list[DescribeClusterBroker]:
    found: dict[int, tuple[str, int]] = {}
    for voter in services.quorum.voter_set.members:
        for endpoint in voter.endpoints:
            if endpoint.listener == listener or len(voter.endpoints) == 1:
                found[voter.key.id] = (endpoint.host, endpoint.port)
    for controller in services.metadata.image.brokers.controllers.values():
        for place in controller.endpoints:
            if place.name == listener:
                found[controller.controller_id] = (place.host, place.port)
    return [DescribeClusterBroker(broker_id=node, host=host, port=port) for node, (host, port) in sorted(found.items())]
