"""Shell: DeleteTopics (key 20), versions 1 to 6.

Decided by the controller. Logs disappear under a `-delete` name at once, their files after `file.delete.delay.ms`.
Version 6 can name topics by id; `delete.topic.enable=false` refuses all.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
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
