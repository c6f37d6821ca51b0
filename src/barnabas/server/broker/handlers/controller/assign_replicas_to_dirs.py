"""Shell: AssignReplicasToDirs (key 73), version 0.

- 0: a broker with several log directories reports the directories of its replicas (KIP-858)

With these the controller knows which replicas are offline when a directory fails.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: AssignReplicasToDirsRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
