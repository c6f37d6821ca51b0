"""Shell: what every request to an API or the console passes first, as an ASGI application around another one.

A request is judged by its head, before its body is read: by the doors (`doors.py`), by the size that it announces, and
by the login. Bodies have a limit, and together with the responses that are being sent a total for each address and for
all. What the application does not read of a
body is read and dropped, up to a limit, so that the client reads the answer and not that its connection is reset.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct

from barnabas.core.addresses import address_group
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.http.doors import HttpDoors, HttpRefusal, has_body
from barnabas.protocol.transport.http.messages import HttpHandler, HttpRequest, HttpResponse
from barnabas.protocol.transport.http.security import HttpSecurity

log = get_logger("barnabas.protocol.transport.http")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application."""
Refuse = Callable[[HttpRefusal, Mapping[str, str]], HttpResponse]
"""The answer to a request that is refused, which has these headers."""

DROPPED_BYTES_MAX: Final = 32 * 1024 * 1024
_SENT_BYTES: Final = 64 * 1024
_SMALL_BYTES: Final = 64 * 1024
_LENGTH: Final = b"content-length"
_TOO_MANY: Final = HttpRefusal(
    HTTPStatus.SERVICE_UNAVAILABLE, "Too many large requests at the same time.", {"Retry-After": "1"}
)


class BodyLimits(Struct, frozen=True):
    """How many bytes of bodies may be received, handled or sent at the same time. A single response may have more.
    Small bodies always pass: connections bound them."""

    of_request: int = 16 * 1024 * 1024
    of_address: int = 32 * 1024 * 1024
    total: int = 96 * 1024 * 1024


class HttpRefusedError(BarnabasError):
    """The request is answered with `refusal`. Raised where an application reads the body."""

    def __init__(self, refusal: HttpRefusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def json_refusal(refusal: HttpRefusal, headers: Mapping[str, str]) -> HttpResponse:
    """An error that is found before the handler is called, as Confluent's REST servers give it."""
    body = json.dumps({"error_code": int(refusal.status), "message": refusal.message}).encode()
    return HttpResponse(refusal.status, body, headers=refusal.headers)


class HttpGate:
    """An ASGI application that lets the requests pass to `app` that may. `security` has the login; None lets everybody
    in, or leaves the login to `app`."""

    def __init__(
        self,
        app: Application,
        doors: HttpDoors,
        *,
        security: HttpSecurity | None = None,
        limits: BodyLimits | None = None,
        refuse: Refuse = json_refusal,
    ) -> None:
        self._app = app
        self._doors = doors
        self._security = security
        self._limits = limits or BodyLimits()
        self._refuse = refuse
        self._bodies: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        client = scope.get("client")
        host = str(client[0]) if client else ""
        exchange = _Exchange(receive, send, headers, address_group(host), self._limits, self._bodies)
        try:
            refusal = await self._refusal(scope["method"], headers, host)
            if refusal is None:
                await self._app(scope, exchange.receive, exchange.send)
            else:
                await exchange.refuse(self._refuse(refusal, headers))
        except HttpRefusedError as error:
            await exchange.refuse(self._refuse(error.refusal, headers))
        finally:
            exchange.release()

    async def _refusal(self, method: str, headers: Mapping[str, str], host: str) -> HttpRefusal | None:
        refusal = self._doors.refusal(method, headers)
        if refusal is not None:
            return refusal
        size = headers.get("content-length", "")
        if size.isdecimal() and int(size) > self._limits.of_request:
            return _too_large(self._limits)
        return None if self._security is None else await self._security.refusal(headers.get("authorization", ""), host)


class _Exchange:
    """The body and the answer of one request."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Mapping[str, str],
        address: str,
        limits: BodyLimits,
        bodies: Counter[str],
    ) -> None:
        self._receive = receive
        self._send = send
        self._is_open = has_body(headers)
        self._waits = headers.get("expect", "").lower() == "100-continue"
        self._address = address
        self._limits = limits
        self._bodies = bodies
        self._size = 0
        self._start: Message | None = None
        self.is_answered = False

    async def receive(self) -> Message:
        """The next message for the application. Raises HttpRefusedError beyond a limit."""
        self._waits = False
        message = await self._receive()
        if message["type"] != "http.request":
            if self._is_open:
                raise HttpRefusedError(HttpRefusal(HTTPStatus.BAD_REQUEST, "The request has ended in its body."))
            return message
        self._count(len(message.get("body", b"")))
        self._is_open = message.get("more_body", False)
        if self._size > self._limits.of_request:
            raise HttpRefusedError(_too_large(self._limits))
        if self._size > _SMALL_BYTES and self._is_too_much():
            raise HttpRefusedError(_TOO_MANY)
        return message

    def _count(self, size: int) -> None:
        self._size += size
        self._bodies[self._address] += size

    def _is_too_much(self) -> bool:
        return self._bodies[self._address] > self._limits.of_address or self._bodies.total() > self._limits.total

    async def send(self, message: Message) -> None:
        """Send what the application answers. Raises HttpRefusedError if too much is being sent already."""
        if message["type"] == "http.response.start" and any(name.lower() == _LENGTH for name, _ in message["headers"]):
            self._start = message  # is sent when it is known how much follows
            return
        body = message.get("body", b"")
        if self._start is not None:
            self.release()
            is_alone = not self._bodies.total()
            self._count(len(body))
            if len(body) > _SMALL_BYTES and not is_alone and self._is_too_much():
                raise HttpRefusedError(_TOO_MANY)
            start, self._start = self._start, None
            await self._send(start)
        self.is_answered = True
        sent = 0
        while len(body) - sent > _SENT_BYTES:  # each part waits until the client has received
            part = body[sent : sent + _SENT_BYTES]
            sent += len(part)
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._end({**message, "body": body[sent:]} if sent else message)

    async def _end(self, message: Message) -> None:
        """Send the end of an answer when the body has arrived, or is given up."""
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not is_last or not self._is_open or self._waits:  # who waits for permission to send a body gets the answer
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        dropped = 0
        while self._is_open and dropped < DROPPED_BYTES_MAX:
            found = await self._receive()
            dropped += len(found.get("body", b""))
            self._is_open = found["type"] == "http.request" and found.get("more_body", False)
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, response: HttpResponse) -> None:
        """Send this answer in place of the application's, unless that has begun."""
        self.release()
        if not self.is_answered:
            await send_response(self.send, response)

    def release(self) -> None:
        """The body of the request, or of the response, is not kept any more."""
        self._bodies[self._address] -= self._size
        self._size = 0
        if not self._bodies[self._address]:
            del self._bodies[self._address]


def _too_large(limits: BodyLimits) -> HttpRefusal:
    return HttpRefusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body of a request may have {limits.of_request} bytes."
    )


async def send_response(send: Send, response: HttpResponse) -> None:
    """Send a whole response."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    if response.status != HTTPStatus.NO_CONTENT:  # RFC 9110: a 204 has neither content nor its length
        own = {"Content-Type": response.content_type, "Content-Length": str(len(response.body))}
        headers[:0] = [(name.encode(), value.encode("latin-1")) for name, value in own.items()]
    await send({"type": "http.response.start", "status": int(response.status), "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def application(handler: HttpHandler) -> Application:
    """The ASGI application of an API whose handler takes whole requests."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        query = scope["query_string"]
        target = (scope["raw_path"] + (b"?" + query if query else b"")).decode("latin-1")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        request = HttpRequest(scope["method"], target, headers, b"".join(parts))
        try:
            response = await handler(request)
        except Exception:  # a bug in the handler must not end the connection
            log.exception("an HTTP request failed", method=request.method, target=request.target)
            response = HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR)
        await send_response(send, response)

    return app
