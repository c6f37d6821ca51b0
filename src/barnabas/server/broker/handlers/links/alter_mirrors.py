"""Shell: AlterMirrors (key 10005), version 0. An API of Barnabas, not of Kafka.

- 0: starts (`operation` 0), pauses (1), resumes (2), stops (3) or recovers (4) mirror topics of a link

Any broker answers; the link's coordinator carries out the request. Topics are named by regular expressions, which must
match the whole name. The response says what was requested of each topic; the leaders of its partitions do it later.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.alter_mirrors import AlterMirrorsRequest, AlterMirrorsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: AlterMirrorsRequest) -> AlterMirrorsResponse:
    try:
        return await services.links.alter_mirrors(request)
    except KafkaError as error:
        return AlterMirrorsResponse(error_code=error.code, error_message=str(error))
