"""Shell: CreatePartitions (key 37), versions 0 to 3.

- 0: adds partitions to topics (KIP-195)
- 1: as 0
- 2: flexible
- 3: THROTTLING_QUOTA_EXCEEDED (KIP-599)

The controller decides. Assignments place the new partitions; ValidateOnly changes nothing.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.detail)
                for topic in request.topics
            ]
        )
    assert isinstance(response, CreatePartitionsResponse)
    return response
