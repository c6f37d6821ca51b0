"""Shell: serves a client's request that a broker has forwarded to the controller (KIP-590).

The request arrives in an Envelope over the network, or from the broker in the same process. The controller serves the
request as if the client had sent it directly, and authorizes the client, not the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.enforcement import authorized
from barnabas.server.broker.controller_apis import FORWARDABLE
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.request_context import RequestContext

_NOT_ACTIVE = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def answer_forwarded(services: ControllerServices, ctx: RequestContext, request: Message) -> Message:
    """The response for the client.

    Raises KafkaError: NOT_CONTROLLER if another node is the active controller (no change was made, or the change was
    rolled back), INVALID_REQUEST for an API that brokers do not forward, UNSUPPORTED_VERSION.
    """
    route = services.apis.by_key.get(ctx.api_key)
    if route is None or ctx.api_key not in FORWARDABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"API key {ctx.api_key} is not forwarded to the controller.")
    if not route.min_version <= ctx.api_version <= route.max_version:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{route.key.name} v{ctx.api_version} is not served by this controller; versions {route.min_version} to "
            f"{route.max_version} are.",
        )
    ctx.is_forwarded = True
    channel = _RecordingChannel(services.controller)
    handler = import_module(f"barnabas.server.broker.handlers.{route.handler}")
    handle = authorized(handler.handle, ctx.api_key, services)
    response: Any = await handle(replace(services, controller=channel), ctx, request)
    if channel.not_controller or getattr(response, "error_code", ErrorCode.NONE) in _NOT_ACTIVE:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    answer: Message = response
    return answer


class _RecordingChannel(Struct):
    """Records whether the controller raised NOT_CONTROLLER, which handlers put into the error fields of a response."""

    channel: ControllerChannel
    not_controller: bool = False

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message:
        try:
            return await self.channel.call(request, version, ctx)
        except KafkaError as error:
            self.not_controller = self.not_controller or error.code is ErrorCode.NOT_CONTROLLER
            raise
