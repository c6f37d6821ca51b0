"""Shell: ControllerRegistration (key 70), version 0.

A controller says where it is and which features it knows (KIP-919).
"""

from __future__ import annotations

from barnabas.broker.controller_services import ControllerServices
from barnabas.broker.request_context import RequestContext
from barnabas.wire.messages.controller_registration import ControllerRegistrationRequest
from barnabas.wire.schema import Message


async def handle(services: ControllerServices, ctx: RequestContext, request: ControllerRegistrationRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
