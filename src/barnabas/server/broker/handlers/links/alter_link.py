"""Shell: AlterLink (key 10003), version 0. An API of Barnabas, not of Kafka.

- 0: creates (`operation` 0), replaces (1) or deletes (2) a cluster link

Any broker answers; the link's coordinator carries out the request. Before a link is created or changed, the coordinator
connects to the source cluster. `validate_only` does all but store the link.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.alter_link import AlterLinkRequest, AlterLinkResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: AlterLinkRequest) -> AlterLinkResponse:
    try:
        return await services.links.alter_link(request)
    except KafkaError as error:
        return AlterLinkResponse(error_code=error.code, error_message=str(error))
