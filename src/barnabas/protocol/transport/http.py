"""Shell: a small HTTP/1.1 server on the running loop, for the packages that have an HTTP API besides Kafka's protocol.

    server = HttpServer("127.0.0.1", 8081, handle)
    await server.bind()
    await server.serve()          # until `stop`

h11 implements the protocol; this module has the sockets and the limits. Requests of one connection are answered one
after the other. The module needs h11 (`pip install barnabas[registry]`).
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from http.client import responses
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import h11
from msgspec import Struct, field

from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import listening_socket

if TYPE_CHECKING:
    from barnabas.protocol.transport.http_security import HttpSecurity

log = get_logger("barnabas.protocol.transport.http")

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
CONNECTIONS_MAX: Final = 1_000
_READ_BYTES: Final = 65_536
_IDLE_S: Final = 60.0
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


class HttpListenerError(BarnabasError):
    """The address of an HTTP server is invalid or cannot be bound."""


class _RefusedError(Exception):
    """The request is answered with `status`, without calling the handler."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status


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
    ) -> None:
        """`security` has the context of TLS, too, and checks the users."""
        self.host = host
        self.port = port
        """The requested port; after `bind`, the port that is bound."""
        self._tls = tls if security is None else security.context
        self._security = security
        self._handler = handler
        self._sock: socket.socket | None = None
        self._stopping = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

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
        if len(self._writers) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._writers.add(writer)
        if self._security is not None:
            self._security.refresh()
        try:
            await self._answer_requests(reader, writer)
        except (ConnectionError, TimeoutError, h11.LocalProtocolError):
            pass  # the connection is lost, so no response can be sent
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = h11.Connection(h11.SERVER)
        while True:
            request: HttpRequest | None = None
            try:
                request = await self._read(protocol, reader, writer)
                if request is None:
                    return
                response = await self._answer(request)
            except h11.RemoteProtocolError as error:
                response = HttpResponse(error.error_status_hint)
            except _RefusedError as refused:
                response = HttpResponse(refused.status)
            if protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return
            head_only = request is not None and request.method == "HEAD"
            await self._write(protocol, writer, response, with_body=not head_only)
            if protocol.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                return
            protocol.start_next_cycle()

    async def _read(
        self, protocol: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> HttpRequest | None:
        """The next request, or None if the client has closed the connection."""
        head: h11.Request | None = None
        parts: list[bytes] = []
        size = 0
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                if protocol.they_are_waiting_for_100_continue:
                    writer.write(protocol.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                async with asyncio.timeout(_IDLE_S):
                    protocol.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > BODY_BYTES_MAX:
                    raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
                return HttpRequest(head.method.decode(), head.target.decode("latin-1"), headers, b"".join(parts))
            else:
                return None

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            if self._security is not None:
                status = await self._security.refusal(request.headers.get("authorization", ""))
                if status is not None:
                    return _refusal(status, self._security.challenge)
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


def _refusal(status: int, challenge: str) -> HttpResponse:
    """The answer to a request whose user is not known, as Confluent's REST servers give it."""
    body = json.dumps({"error_code": status, "message": HTTPStatus(status).phrase}).encode()
    headers = {"WWW-Authenticate": challenge} if status == HTTPStatus.UNAUTHORIZED else {}
    return HttpResponse(status, body, headers=headers)


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
