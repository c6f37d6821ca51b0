"""Shell: DescribeCluster (key 60) on the brokers' listeners, versions 0 to 2.

- 0: the id of the cluster and its brokers (KIP-700)
- 1: the endpoint type: 1 brokers, 2 controllers (KIP-919)
- 2: fenced brokers on request (KIP-1073)

A broker serves endpoint type 1; type 2 is MISMATCHED_ENDPOINT_TYPE. The controller id of the response is any live
broker, because every broker forwards requests to the controller.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.operations import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.protocol.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.request_context import RequestContext

BROKERS = 1
CONTROLLERS = 2


async def handle(port: ClusterPort, ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        if request.endpoint_type != CONTROLLERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=f"Unsupported endpoint type {request.endpoint_type}",
            )
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This endpoint belongs to a broker. Send the request to a controller to list controllers.",
        )
    image = port.metadata.image
    brokers = []
    for broker in image.brokers:
        endpoint = broker.endpoint(ctx.client.listener)
        if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
            continue
        brokers.append(
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    alive = [broker.broker_id for broker in brokers if not broker.is_fenced]
    with_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=port.rng.choice(alive) if alive else -1,
        brokers=brokers,
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NOT_ASKED,
    )
