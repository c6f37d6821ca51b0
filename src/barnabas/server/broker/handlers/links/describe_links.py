"""Shell: DescribeLinks (key 10004), version 0. An API of Barnabas, not of Kafka.

- 0: cluster links, by name or all, and on request the stored states of their mirror partitions

Any broker answers. Passwords in the settings of a link are hidden. The other side of a link uses this API to learn
where a stopped mirror ended, before it mirrors in the other direction.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.describe_links import DescribeLinksRequest, DescribeLinksResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: DescribeLinksRequest) -> DescribeLinksResponse:
    try:
        return await services.links.describe_links(request)
    except KafkaError as error:
        return DescribeLinksResponse(error_code=error.code, error_message=str(error))
