"""Shell: BrokerHeartbeat (key 63), versions 0 to 2.

- 0: renews the session of a broker (KIP-631)
- 1: the offline log directories (KIP-858)
- 2: the cordoned log directories, which get no new replicas (KIP-1066)

A broker reports the metadata offset up to which it has read, and whether it wants to be fenced, unfenced or shut
down. The response reports whether the broker is fenced, and whether it may shut down because it leads no partition
any more. STALE_BROKER_EPOCH means that another process has registered with the broker's id.

The controller remembers the connection of the last heartbeat. When that connection is lost, the controller finds out
whether the broker's process has ended (`metadata/failure_detector.py`).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: BrokerHeartbeatRequest) -> Message:
    return await services.controller.call(request, ctx.api_version, ctx)
