"""Shell: CreateTopics (key 19), versions 2 to 7.

Decided by the controller: names, counts, replica assignments, configs, `validate_only`; answered when every log this
node hosts of them exists. Version 5 returns the effective configs of what was made (KIP-525), 7 the topic ids.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    try:
        response = await services.controller.call(request, ctx.api_version, ctx)
    except KafkaError as error:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.detail)
                for topic in request.topics
            ]
        )
    assert isinstance(response, CreateTopicsResponse)
    return response
