"""Shell: CreateTopics (key 19), versions 2 to 7.

- 2: creates topics; ValidateOnly changes nothing (KIP-4)
- 3: as 2
- 4: -1 stands for the default number of partitions or replicas (KIP-464)
- 5: flexible; the effective configs of the new topics in the response (KIP-525)
- 6: THROTTLING_QUOTA_EXCEEDED (KIP-599)
- 7: the ids of the new topics in the response (KIP-516)

The controller decides. The response is sent when the logs of all new partitions that this node hosts exist.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.detail)
                for topic in request.topics
            ]
        )
    assert isinstance(response, CreateTopicsResponse)
    return response
