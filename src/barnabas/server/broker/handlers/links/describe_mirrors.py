"""Shell: DescribeMirrors (key 10006), version 0. An API of Barnabas, not of Kafka.

- 0: state, position and lag of the mirror partitions that this broker leads
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.describe_mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: DescribeMirrorsRequest) -> DescribeMirrorsResponse:
    try:
        return services.links.describe_mirrors(request)
    except KafkaError as error:
        return DescribeMirrorsResponse(error_code=error.code, error_message=str(error))
