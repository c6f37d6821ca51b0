"""Shell: BrokerHeartbeat (key 63), versions 0 to 2.

A broker lives, has read the metadata log so far, and wants to be (un)fenced or to stop. The answer says whether it is
fenced, and whether everything is handed over so that it may go. STALE_BROKER_EPOCH: the registration is another
process's by now.

Versions: 1 log directories that are offline, 2 those that shall get no new replicas.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: BrokerHeartbeatRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
