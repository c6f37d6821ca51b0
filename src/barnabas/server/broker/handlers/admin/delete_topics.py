"""Shell: DeleteTopics (key 20), versions 1 to 6.

- 1: deletes topics; throttle time in the response
- 2: as 1
- 3: TOPIC_DELETION_DISABLED while `delete.topic.enable` is false (KIP-322)
- 4: flexible
- 5: error messages; THROTTLING_QUOTA_EXCEEDED (KIP-599)
- 6: topic ids in place of names (KIP-516)

The controller decides. The directory of a deleted log is renamed to `*-delete` at once; its files are removed after
`file.delete.delay.ms`.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    try:
        response = await port.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.detail
                )
                for topic in wanted
            ]
        )
    assert isinstance(response, DeleteTopicsResponse)
    return response
