"""Shell: a client's request that reached the controller through a broker, answered as if the client had come itself.

It came in an Envelope over the network, or from the broker in the same process; the way of answering is one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_apis import FORWARDABLE
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.request_context import RequestContext

_ELSEWHERE = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def answer_forwarded(services: ControllerServices, ctx: RequestContext, request: Message) -> Message:
    """The answer to give the client. Raises KafkaError: NOT_CONTROLLER when another node has to be asked (nothing was
    done, or it was undone), INVALID_REQUEST for an API that brokers do not forward, UNSUPPORTED_VERSION."""
    route = services.apis.by_key.get(ctx.api_key)
    if route is None or ctx.api_key not in FORWARDABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Requests with key {ctx.api_key} are not forwarded.")
    if not route.min_version <= ctx.api_version <= route.max_version:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{route.key.name} v{ctx.api_version} is not served here: versions {route.min_version} to "
            f"{route.max_version} are.",
        )
    channel = _Watched(services.controller)
    handler = import_module(f"barnabas.server.broker.handlers.{route.handler}")
    response: Any = await handler.handle(replace(services, controller=channel), ctx, request)
    if channel.elsewhere or getattr(response, "error_code", ErrorCode.NONE) in _ELSEWHERE:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    answer: Message = response
    return answer


class _Watched(Struct):
    """Remembers that the controller refused: handlers put the error wherever their response has a place for it."""

    channel: ControllerChannel
    elsewhere: bool = False

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message:
        try:
            return await self.channel.call(request, version, ctx)
        except KafkaError as error:
            self.elsewhere = self.elsewhere or error.code is ErrorCode.NOT_CONTROLLER
            raise
