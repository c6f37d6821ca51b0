"""Shell: ControllerRegistration (key 70), version 0.

- 0: a controller registers its listeners and supported features (KIP-919)
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: ControllerRegistrationRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
