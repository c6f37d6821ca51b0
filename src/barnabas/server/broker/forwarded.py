"""Shell: serves a client's request that a broker has forwarded to the controller (KIP-590).

The request arrives in an Envelope over the network, or from the broker in the same process. The controller serves the
request as if the client had sent it directly, and authorizes the client, not the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.apis import API_ROWS
from barnabas.server.broker.authorization.enforcement import authorized
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.broker.error_responses import error_response
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.served import load_handler

_NOT_ACTIVE = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class ForwardedRequests(Protocol):
    """The controller of this node, as it serves the requests of clients that brokers forward."""

    async def answer(self, ctx: RequestContext, request: Message) -> Message:
        """The response for the client.

        Raises KafkaError: NOT_CONTROLLER if another node is the active controller (no change was made, or the change
        was rolled back), INVALID_REQUEST for an API that brokers do not forward, UNSUPPORTED_VERSION.
        """
        ...


class ForwardingHandlers:
    """Implements `ForwardedRequests` with the handlers of the controllers' listener."""

    def __init__(self, ports: Mapping[str, Any], authorizer: Authorizer | None) -> None:
        """`ports` are those of the folders whose handlers serve forwarded requests."""
        self._ports = ports
        self._authorizer = authorizer

    async def answer(self, ctx: RequestContext, request: Message) -> Message:
        row = API_ROWS.get(ApiKey(ctx.api_key)) if ctx.api_key in APIS else None
        if row is None or row.controller is None or not row.is_forwarded:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"API key {ctx.api_key} is not forwarded to the controller.")
        served = row.controller
        if not served.min_version <= ctx.api_version <= served.max_version:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{row.key.name} v{ctx.api_version} is not served by this controller; versions {served.min_version} to "
                f"{served.max_version} are.",
            )
        ctx.is_forwarded = True
        port, recording = self._ports[served.folder], None
        if hasattr(port, "controller"):
            recording = _RecordingChannel(port.controller)
            port = replace(port, controller=recording)
        handle = authorized(load_handler(served.folder, row.key), row.key, served.access, self._authorizer)
        try:
            response: Any = await handle(port, ctx, request)
        except KafkaError as error:
            if not hasattr(APIS[row.key].response, "error_code"):
                raise
            response = error_response(ctx, error)
        recorded = recording is not None and recording.not_controller
        if recorded or getattr(response, "error_code", ErrorCode.NONE) in _NOT_ACTIVE:
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
