"""Shell: DescribeQuorum (key 55) on the brokers' listeners, versions 0 to 2.

- 0: leader, voters and observers of the metadata quorum with their log end offsets (KIP-595)
- 1: the time of each replica's last fetch, and when it was last caught up (KIP-836)
- 2: directory ids, the voters' listeners, and error messages (KIP-853)

The leader of the metadata quorum answers from its own state. Any other node forwards the request to the active
controller. See `handlers/quorum/describe_quorum.py`.
"""

from __future__ import annotations

from typing import cast

from barnabas.protocol.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.handlers.quorum.describe_quorum import describe
from barnabas.server.broker.request_context import RequestContext


async def handle(port: AdminPort, ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    view = port.quorum.describe()
    if view is not None:
        return describe(view, ctx.api_version, request)
    return cast("DescribeQuorumResponse", await port.controller.call(request, ctx.api_version, ctx))
