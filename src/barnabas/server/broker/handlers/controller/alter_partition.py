"""Shell: AlterPartition (key 56), versions 2 to 3.

- 2: the leader of partitions changes their in-sync replicas (KIP-497, KIP-704); topic ids (KIP-841)
- 3: the broker epoch of each in-sync replica, so that a broker that has restarted is not taken for its previous
  incarnation, which had caught up (KIP-903)

Each partition has its own result.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: AlterPartitionRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
