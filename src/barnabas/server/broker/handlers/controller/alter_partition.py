"""Shell: AlterPartition (key 56), versions 2 to 3.

A leader changes who is in sync (KIP-497); each partition has its own outcome. Version 3 names the broker epoch of every
member, so that one that was started anew is not taken for the one that had caught up (KIP-903).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: AlterPartitionRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
