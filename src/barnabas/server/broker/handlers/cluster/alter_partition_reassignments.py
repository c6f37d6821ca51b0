"""Shell: AlterPartitionReassignments (key 45), versions 0 to 1.

Moves partitions to other brokers (KIP-455), or cancels moves (`replicas` null). Decided by the controller, for each
partition on its own; the moves go on in the background. Version 1 can forbid that the replication factor changes.
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
