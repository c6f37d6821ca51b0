"""Shell: a small HTTP/1.1 server on the running loop, for the packages that have an HTTP API besides Kafka's protocol.

    server = HttpServer("127.0.0.1", 8081, handle)
    await server.bind()
    await server.serve()          # until `stop`

h11 implements the protocol; this module has the sockets and the limits. Requests of one connection are answered one
after the other. The module needs h11 (`pip install barnabas[registry]`).

A request is judged by its head, before its body is read: by `http_doors.py`, and by the login. Connections have slots
(`http_slots.py`), and a client has a deadline for each part: TLS and the head, the body, and the receipt of the
response. Bodies have a limit, and a total for each address and for all.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from http.client import responses
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import h11
from msgspec import Struct, field

from barnabas.core.addresses import address_group
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.login_attempts import LoginAttempts
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.http_doors import HttpDoors
from barnabas.protocol.transport.http_slots import HttpSlots
from barnabas.protocol.transport.listener import listening_socket

if TYPE_CHECKING:
    from barnabas.protocol.transport.http_security import HttpSecurity

log = get_logger("barnabas.protocol.transport.http")

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
BODIES_BYTES_OF_ADDRESS_MAX: Final = 32 * 1024 * 1024
"""The bodies of the requests of one address that are being received or handled."""
BODIES_BYTES_MAX: Final = 96 * 1024 * 1024
CONNECTIONS_MAX: Final = 1_000
CONNECTIONS_OF_ADDRESS_MAX: Final = 250
LOGINS_OF_ADDRESS_MAX: Final = 4
"""Logins of one address that are being checked. Further ones are answered 429."""
_READ_BYTES: Final = 65_536
_DRAINED_BYTES_MAX: Final = 32 * 1024 * 1024
"""So much of a refused body is read and dropped, so that the client reads the answer instead of a reset."""
_IDLE_S: Final = 60.0
_HEAD_S: Final = 10.0
_BODY_S: Final = 60.0
_RECEIPT_S: Final = 60.0
_HANDSHAKE_S: Final = 10.0


class HttpRequest(Struct, frozen=True):
    """A complete request. `target` is the path with its query, as sent; header names are lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpResponse(Struct, frozen=True):
    """A complete HTTP response: status, headers and body."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers a request. If the handler raises, the exception is logged and the response has status 500."""


class HttpLogin(Protocol):
    """Decides who may use an HTTP server."""

    def is_known(self, authorization: str) -> bool:
        """Whether this header Authorization was right a moment ago."""
        ...

    async def refusal(self, authorization: str) -> HttpResponse | None:
        """The answer to a request with this header Authorization; None if it may pass."""
        ...


class HttpListenerError(BarnabasError):
    """The address of an HTTP server is invalid or cannot be bound."""


class _RefusedError(Exception):
    """The request is answered with `response`, without calling the handler."""

    def __init__(self, response: HttpResponse) -> None:
        self.response = response


class _Connection:
    """One connection: its slot, and the bytes of the body that is received or handled."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        peer = writer.get_extra_info("peername")
        self.address = address_group(str(peer[0])) if peer else ""
        self.body_bytes = 0

    def abort(self) -> None:
        self.writer.transport.abort()


class HttpServer:
    """One listening socket and its connections."""

    def __init__(
        self,
        host: str,
        port: int,
        handler: HttpHandler,
        *,
        tls: ssl.SSLContext | None = None,
        security: HttpSecurity | None = None,
        login: HttpLogin | None = None,
        doors: HttpDoors | None = None,
    ) -> None:
        """`security` has the context of TLS, too, and checks the users; `login` checks them in its place. `doors` are
        by default those of a server that has the name `host`, and a login if one of the two is given."""
        self.host = host
        self.port = port
        """The requested port; after `bind`, the port that is bound."""
        self._tls = tls if security is None else security.context
        self._security = security
        self._login = _SecurityLogin(security) if login is None and security is not None else login
        has_login = login is not None or (security is not None and security.has_login)
        self._doors = doors or HttpDoors(None if has_login else [host])
        self._handler = handler
        self._sock: socket.socket | None = None
        self._stopping = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._slots = HttpSlots(CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX)
        self._attempts = LoginAttempts()
        self._logins: Counter[str] = Counter()
        self._bodies: Counter[str] = Counter()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host or "127.0.0.1"
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    async def bind(self) -> None:
        """Bind the port. Raises OSError if the port is in use."""
        self._sock = listening_socket(ListenerEndpoint("HTTP", self.host, self.port))
        self.port = int(self._sock.getsockname()[1])

    async def serve(self) -> None:
        """Answer requests until `stop`, or until cancelled."""
        if self._sock is None:
            await self.bind()
        timeout = None if self._tls is None else _HANDSHAKE_S
        server = await asyncio.start_server(
            self._connection, sock=self._sock, ssl=self._tls, ssl_handshake_timeout=timeout
        )
        try:
            await self._stopping.wait()
        finally:
            server.close()
            for writer in list(self._writers):
                writer.transport.abort()

    def stop(self) -> None:
        self._stopping.set()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        if not self._slots.enter(connection, connection.address):
            writer.close()
            return
        self._writers.add(writer)
        if self._security is not None:
            self._security.refresh()
        try:
            await self._answer_requests(reader, connection)
        except (ConnectionError, TimeoutError, h11.LocalProtocolError):
            writer.transport.abort()  # the connection is lost, or the client is too slow: no response can be sent
        finally:
            self._writers.discard(writer)
            self._slots.leave(connection)
            self._count_body(connection, -connection.body_bytes)
            writer.close()

    async def _answer_requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        protocol = h11.Connection(h11.SERVER)
        while True:
            request: HttpRequest | None = None
            try:
                request = await self._read(protocol, reader, connection)
                if request is None:
                    return
                self._slots.handle(connection)
                response = await self._answer(request)
            except h11.RemoteProtocolError as error:
                response = HttpResponse(error.error_status_hint)
            except _RefusedError as refused:
                response = refused.response
            if protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return
            head_only = request is not None and request.method == "HEAD"
            self._count_body(connection, -connection.body_bytes)
            self._slots.wait(connection)
            async with asyncio.timeout(_RECEIPT_S):
                await self._write(protocol, connection.writer, response, with_body=not head_only)
                if protocol.their_state is h11.SEND_BODY:
                    await _drain(protocol, reader)
            if protocol.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                return
            protocol.start_next_cycle()

    async def _read(
        self, protocol: h11.Connection, reader: asyncio.StreamReader, connection: _Connection
    ) -> HttpRequest | None:
        """The next request, or None if the client has closed the connection. Raises _RefusedError for a request that
        is refused by its head or by the size of its body."""
        async with asyncio.timeout(_IDLE_S):
            event = protocol.next_event()
            if event is h11.NEED_DATA and not protocol.trailing_data[0]:
                protocol.receive_data(await reader.read(_READ_BYTES))
                event = protocol.next_event()
        async with asyncio.timeout(_HEAD_S):
            while event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(_READ_BYTES))
                event = protocol.next_event()
        if not isinstance(event, h11.Request):
            return None
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
        method = event.method.decode()
        await self._check(method, headers, connection)
        parts: list[bytes] = []
        async with asyncio.timeout(_BODY_S):
            while True:
                part = protocol.next_event()
                if part is h11.NEED_DATA:
                    if protocol.they_are_waiting_for_100_continue:
                        found = protocol.send(h11.InformationalResponse(status_code=100, headers=[]))
                        connection.writer.write(found or b"")
                    protocol.receive_data(await reader.read(_READ_BYTES))
                elif isinstance(part, h11.Data):
                    self._count_body(connection, len(part.data))
                    parts.append(bytes(part.data))
                elif isinstance(part, h11.EndOfMessage):
                    return HttpRequest(method, event.target.decode("latin-1"), headers, b"".join(parts))
                else:
                    return None

    async def _check(self, method: str, headers: Mapping[str, str], connection: _Connection) -> None:
        """Judge a request by its head. Raises _RefusedError."""
        refusal = self._doors.refusal(method, headers)
        if refusal is not None:
            raise _RefusedError(_error(refusal.status, refusal.message))
        size = headers.get("content-length", "")
        if size.isdecimal() and int(size) > BODY_BYTES_MAX:
            raise _RefusedError(_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
        if self._login is None:
            return
        authorization = headers.get("authorization", "")
        if self._login.is_known(authorization):
            return
        address, loop = connection.address, asyncio.get_running_loop()
        wait_ms = self._attempts.wait_ms(address, int(loop.time() * 1000))
        if authorization and (wait_ms or self._logins[address] >= LOGINS_OF_ADDRESS_MAX):
            after = {"Retry-After": str(max(1, -(-wait_ms // 1000)))}
            raise _RefusedError(_error(HTTPStatus.TOO_MANY_REQUESTS, "Too many failed logins.", after))
        self._logins[address] += 1
        try:
            response = await self._login.refusal(authorization)
        finally:
            self._logins[address] -= 1
            if not self._logins[address]:
                del self._logins[address]
        if response is None:
            self._attempts.succeeded(address)
            return
        if authorization and response.status == HTTPStatus.UNAUTHORIZED:
            self._attempts.failed(address, int(loop.time() * 1000))
        raise _RefusedError(response)

    def _count_body(self, connection: _Connection, size: int) -> None:
        """Count bytes of a body; negative ones are dropped. Raises _RefusedError beyond a limit."""
        connection.body_bytes += size
        bodies, address = self._bodies, connection.address
        bodies[address] += size
        if not bodies[address]:
            del bodies[address]
        if size <= 0:
            return
        if connection.body_bytes > BODY_BYTES_MAX:
            raise _RefusedError(_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
        if bodies[address] > BODIES_BYTES_OF_ADDRESS_MAX or bodies.total() > BODIES_BYTES_MAX:
            message = "Too many large requests at the same time."
            raise _RefusedError(_error(HTTPStatus.SERVICE_UNAVAILABLE, message, {"Retry-After": "1"}))

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            return await self._handler(request)
        except Exception:  # a bug in the handler must not end the connection
            log.exception("an HTTP request failed", method=request.method, target=request.target)
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _write(
        self, protocol: h11.Connection, writer: asyncio.StreamWriter, response: HttpResponse, *, with_body: bool
    ) -> None:
        headers = list(response.headers.items())
        if response.status != HTTPStatus.NO_CONTENT:  # RFC 9110: a 204 has neither content nor its length
            headers[:0] = [("Content-Type", response.content_type), ("Content-Length", str(len(response.body)))]
        reason = responses.get(response.status, "").encode()
        head = h11.Response(status_code=response.status, headers=headers, reason=reason)
        parts = [protocol.send(head), protocol.send(h11.Data(data=response.body)) if with_body else None]
        parts.append(protocol.send(h11.EndOfMessage()))
        writer.writelines([part for part in parts if part])
        await writer.drain()


async def _drain(protocol: h11.Connection, reader: asyncio.StreamReader) -> None:
    """Read and drop the rest of a refused body, up to a limit."""
    left = _DRAINED_BYTES_MAX
    while left > 0:
        try:
            event = protocol.next_event()
        except h11.RemoteProtocolError:
            return
        if event is h11.NEED_DATA:
            data = await reader.read(_READ_BYTES)
            left -= len(data) or left
            protocol.receive_data(data)
        elif not isinstance(event, h11.Data):
            return


def _error(status: int, message: str = "", headers: Mapping[str, str] | None = None) -> HttpResponse:
    """An error that is found before the handler is called, as Confluent's REST servers give it."""
    body = json.dumps({"error_code": status, "message": message or HTTPStatus(status).phrase}).encode()
    return HttpResponse(status, body, headers=headers or {})


class _SecurityLogin:
    """The users of `HttpSecurity` as an `HttpLogin`."""

    def __init__(self, security: HttpSecurity) -> None:
        self._security = security

    def is_known(self, authorization: str) -> bool:
        return self._security.is_known(authorization)

    async def refusal(self, authorization: str) -> HttpResponse | None:
        status = await self._security.refusal(authorization)
        if status is None:
            return None
        headers = {"WWW-Authenticate": self._security.challenge} if status == HTTPStatus.UNAUTHORIZED else {}
        return _error(status, headers=headers)


def parse_http_listener(text: str, *, example: str, allows_tls: bool = False) -> tuple[str, int]:
    """Parse `http://host:port`, or `https://host:port` if the server may have TLS; port 0 takes any free port. Raises
    HttpListenerError, whose message has the example.
    """
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port
    except ValueError:
        port = None
    schemes = ("http", "https") if allows_tls else ("http",)
    if parts.scheme not in schemes or port is None or parts.path not in ("", "/"):
        raise HttpListenerError(f"{text!r} is not a listener: write http://host:port, for example {example}.")
    return parts.hostname or "", port
