"""Shell: BrokerRegistration (key 62), versions 0 to 4.

- 0: registers a broker with its listeners and features, and returns its broker epoch (KIP-631)
- 1: IsMigratingZkBroker (KIP-866)
- 2: log directories (KIP-858)
- 3: the epoch of the previous process, if that was shut down in order (KIP-966)
- 4: features whose minimum level is 0 (KAFKA-17011)

The broker is fenced until its heartbeats unfence it. DUPLICATE_BROKER_REGISTRATION means that another process with
the same broker id has a live session.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: BrokerRegistrationRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
