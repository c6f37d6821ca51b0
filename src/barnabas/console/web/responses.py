"""Shell: errors as responses, the headers of all responses, and request bodies within a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnabas.client.errors import BrokerUnreachableError, RequestTimeoutError
from barnabas.console.errors import BadInputError, ConsoleError
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.protocol.transport.http.doors import HttpRefusal
from barnabas.protocol.transport.http.gate import BodyLimits, HttpRefusedError
from barnabas.protocol.transport.http.logins import TooManyLoginsError
from barnabas.protocol.transport.http.messages import HttpResponse
from barnabas.registry.errors import RegistryError

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
LOGIN_BYTES_MAX: Final = 16 * 1024
"""The most bytes of a body of a client that may not have logged in."""
BODY_LIMITS: Final = BodyLimits(of_request=BODY_BYTES_MAX, of_address=64 * 1024 * 1024, total=64 * 1024 * 1024)
_FIELDS_MAX: Final = 200
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class HeadersMiddleware:
    """Adds the security headers to every response. Pages are not cached, because they show data."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_static = scope["path"].startswith("/static/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers["cache-control"] = "max-age=300" if is_static else "no-store"
            await send(message)

        await self._app(scope, receive, send_with_headers)


def status_of(error: BarnabasError) -> int:
    """The HTTP status for an operating failure."""
    match error:
        case ConsoleError():
            return error.status
        case TooManyLoginsError():
            return 429
        case HttpRefusedError():
            return error.refusal.status
        case RegistryError():
            return error.code if error.code < 1000 else error.code // 100
        case BrokerUnreachableError() | RequestTimeoutError():
            return 503
        case KafkaError():
            if error.code in _FORBIDDEN:
                return 403
            return 503 if error.code.retriable else 400
        case _:
            return 502


def refused(refusal: HttpRefusal, headers: Mapping[str, str]) -> HttpResponse:
    """The answer to a request that no page of the console gets."""
    if "text/html" in headers.get("accept", ""):
        return HttpResponse(
            refusal.status, refusal.message.encode(), "text/plain; charset=utf-8", {**HEADERS, **refusal.headers}
        )
    body = json.dumps({"error": refusal.message}).encode()
    return HttpResponse(refusal.status, body, headers={**HEADERS, **refusal.headers})


async def read_fields(request: Request, bytes_max: int = BODY_BYTES_MAX) -> dict[str, str]:
    """The fields of a form, or of a JSON object whose values are scalars. Raises BadInputError."""
    body = await _body(request, bytes_max)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        try:
            document = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"The body is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise BadInputError("The body must be a JSON object.")
        return {name: _field(value) for name, value in document.items() if value is not None}
    if kind == "application/x-www-form-urlencoded":
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, strict_parsing=False)
        except ValueError as error:
            raise BadInputError(f"The form cannot be read: {error}") from None
        return {name: value.replace("\r\n", "\n") for name, value in pairs}
    raise BadInputError("Send application/x-www-form-urlencoded or application/json.")


def _field(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if not isinstance(value, bool) else ("true" if value else "")


async def _body(request: Request, bytes_max: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise BadInputError(f"The body has more than {bytes_max} bytes.")
        parts.append(part)
    return b"".join(parts)
