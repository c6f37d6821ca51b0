"""Shell: DescribeCluster (key 60) on the controllers' listener, versions 0 to 2.

- 0: the id of the cluster (KIP-700)
- 1: the endpoint type: 1 brokers, 2 controllers (KIP-919)
- 2: as 1; controllers are never fenced (KIP-1073)

A controller serves endpoint type 2: the controllers and the id of the active one, which an AdminClient with
`bootstrap.controllers` connects to. Type 1 is MISMATCHED_ENDPOINT_TYPE. The addresses are those with which the
controllers have registered, or else the voters' addresses in the metadata quorum.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.operations import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.protocol.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.server.broker.handlers.controller.port import ControllerPort
from barnabas.server.broker.request_context import RequestContext

BROKERS = 1
CONTROLLERS = 2


async def handle(port: ControllerPort, ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != CONTROLLERS:
        known = request.endpoint_type == BROKERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=(
                "This endpoint belongs to a controller. Send the request to a broker to list brokers."
                if known
                else f"Unsupported endpoint type {request.endpoint_type}"
            ),
            endpoint_type=request.endpoint_type,
        )
    with_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=port.cluster_id,
        controller_id=port.quorum.leader_id,
        brokers=_controllers(port, ctx.client.listener),
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NOT_ASKED,
    )


def _controllers(port: ControllerPort, listener: str) -> list[DescribeClusterBroker]:
    found: dict[int, tuple[str, int]] = {}
    for voter in port.quorum.voter_set.members:
        for endpoint in voter.endpoints:
            if endpoint.listener == listener or len(voter.endpoints) == 1:
                found[voter.key.id] = (endpoint.host, endpoint.port)
    for controller in port.metadata.image.brokers.controllers.values():
        for address in controller.endpoints:
            if address.name == listener:
                found[controller.controller_id] = (address.host, address.port)
    return [DescribeClusterBroker(broker_id=node, host=host, port=port) for node, (host, port) in sorted(found.items())]
