"""Codec: the response to a request whose handler raised an error."""

from __future__ import annotations

from typing import Any

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.ports import CloseConnectionError
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.request_context import RequestContext

log = get_logger("barnabas.server.broker")


def error_response(ctx: RequestContext, error: Exception) -> Message:
    """The response to a request whose handler raised `error`; its top-level `error_code` carries the error.

    Raises CloseConnectionError if the response has no such field.
    """
    api = APIS[ApiKey(ctx.api_key)]
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if not isinstance(error, KafkaError):
        log.exception("a request handler failed", api=api.name, version=ctx.api_version, client=ctx.client_id)
    response: Any = api.response()  # the fields of the response depend on the API
    if not hasattr(response, "error_code"):
        raise CloseConnectionError(f"{api.name} v{ctx.api_version} failed: {error}") from error
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = str(error) if isinstance(error, KafkaError) else code.message
    message: Message = response
    return message
