"""Shell: DescribeQuorum (key 55) on the brokers' listeners, versions 0 to 2 (KIP-595).

A node that leads the metadata log answers by itself, any other asks the active controller. What the answer says is in
`handlers/quorum/describe_quorum`.
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.server.broker.handlers.quorum.describe_quorum import describe
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    view = services.quorum.describe()
    if view is not None:
        return describe(view, ctx.api_version, request)
    return cast("DescribeQuorumResponse", await services.controller.call(request, ctx.api_version, ctx))
