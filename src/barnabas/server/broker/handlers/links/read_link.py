"""Shell: ReadLink (key 10007), version 0. An API of Barnabas, not of Kafka.

- 0: a leader of mirror partitions reads the definition of its link, with passwords, from the link's coordinator

Only the coordinator answers; another broker returns NOT_COORDINATOR.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.read_link import ReadLinkRequest, ReadLinkResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ReadLinkRequest) -> ReadLinkResponse:
    try:
        return services.links.read_link(request)
    except KafkaError as error:
        return ReadLinkResponse(error_code=error.code, error_message=str(error))
