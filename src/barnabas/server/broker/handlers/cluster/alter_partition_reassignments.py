"""Shell: AlterPartitionReassignments (key 45), versions 0 to 1.

- 0: moves partitions to other brokers, or cancels a move if the replicas are null (KIP-455)
- 1: AllowReplicationFactorChange false rejects a move to another number of replicas (KIP-860)

The controller decides about each partition separately. The response is sent when the moves have begun.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=str(error))
    assert isinstance(response, AlterPartitionReassignmentsResponse)
    return response
