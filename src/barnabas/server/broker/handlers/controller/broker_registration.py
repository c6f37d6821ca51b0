"""Shell: BrokerRegistration (key 62), versions 0 to 4.

A broker's process says who and where it is, and gets the broker epoch that it signs everything with. It comes up
fenced; its heartbeats unfence it. DUPLICATE_BROKER_REGISTRATION while another process with that id is alive.

Versions: 2 log directories (KIP-858), 3 the epoch of the process before, if that stopped in order (KIP-966).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: BrokerRegistrationRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
