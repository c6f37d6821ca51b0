"""Shell: an HTTP/1.1 server on the running loop, for the packages that have an HTTP API or pages besides Kafka's
protocol: uvicorn's protocol, with what an ASGI application cannot have.

    server = HttpServer("127.0.0.1", 8081, app)
    await server.bind()
    await server.serve()          # until `stop`

Connections have slots (`slots.py`), and a client has a deadline for each thing that it owes: TLS and the head, the
body, and the receipt of the response. `gate.py` judges requests, and limits their bodies.

The module needs h11 and uvicorn (`pip install barnabas[registry]`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Collection
from email.utils import formatdate
from typing import Final
from urllib.parse import urlsplit

import h11
from msgspec import Struct
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from barnabas.core.addresses import address_group
from barnabas.core.errors import BarnabasError
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.http.connection import HEAD_S, AcceptedHttpConnection, HttpAcceptor
from barnabas.protocol.transport.http.doors import HttpDoors
from barnabas.protocol.transport.http.gate import Application, HttpGate, application
from barnabas.protocol.transport.http.messages import HttpHandler
from barnabas.protocol.transport.http.security import HttpSecurity
from barnabas.protocol.transport.http.slots import HttpSlots
from barnabas.protocol.transport.listener import listening_socket
from barnabas.protocol.transport.turn_taking import REQUEST_S, TURN_S, TurnTaking
from barnabas.protocol.transport.turns import Share

_SHUTDOWN_S: Final = 3.0
_ABORT_S: Final = 1.0
_NEVER_S: Final = 86_400
_PIECE_BYTES: Final = 4_096
_QUIET: Final = logging.getLogger("barnabas.protocol.transport.http.requests")
"""The logger of uvicorn's protocol. Its warnings are about requests of strangers, and would fill the log."""
_QUIET.setLevel(logging.ERROR)


class HttpListenerError(BarnabasError):
    """The address of an HTTP server is invalid or cannot be bound."""


class HttpLimits(Struct, frozen=True):
    """How many connections a server has, and how long it waits for their clients."""

    total: int = 1_000
    of_address: int = 250
    head_s: float = HEAD_S
    body_s: float = 60.0
    receipt_s: float = 60.0
    idle_s: float = 60.0
    """From a response to the next request."""


class HttpServer:
    """One listening socket and its connections. `app` is an ASGI application. Of `security`, TLS counts."""

    def __init__(
        self,
        host: str,
        port: int,
        app: Application,
        *,
        security: HttpSecurity | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self.host = host
        self.port = port
        """The requested port; after `bind`, the port that is bound."""
        self._security = security
        self._app = app
        self._limits = limits or HttpLimits()
        self._sock: socket.socket | None = None
        self._stopping = asyncio.Event()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host or "127.0.0.1"
        is_secure = self._security is not None and self._security.context is not None
        return f"{'https' if is_secure else 'http'}://{host}:{self.port}"

    async def bind(self) -> None:
        """Bind the port. Raises OSError if the port is in use."""
        self._sock = listening_socket(ListenerEndpoint("HTTP", self.host, self.port))
        self.port = int(self._sock.getsockname()[1])

    def close(self) -> None:
        """Close the socket, for a server whose `serve` was never called."""
        if self._sock is not None:
            self._sock.close()

    async def serve(self) -> None:
        """Answer requests until `stop`, or until cancelled."""
        if self._sock is None:
            await self.bind()
        assert self._sock is not None, "bound"
        config = Config(
            self._app, interface="asgi3", http=H11Protocol, ws="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, timeout_keep_alive=_NEVER_S,
        )  # fmt: skip
        config.load()
        state = ServerState()
        slots, limits = HttpSlots(self._limits.total, self._limits.of_address), self._limits
        connections: set[AcceptedHttpConnection] = set()

        turns = TurnTaking()

        def build(connection: AcceptedHttpConnection) -> asyncio.Protocol:
            return _Requests(connection, connections, limits, turns, config, state)

        acceptor = HttpAcceptor(
            self._sock, slots, lambda: AcceptedHttpConnection(slots, self._security, build, head_s=limits.head_s)
        )
        try:
            await self._stopping.wait()
            acceptor.close()
            for protocol in list(state.connections):
                with contextlib.suppress(h11.LocalProtocolError):
                    protocol.shutdown()
            if state.tasks:
                await asyncio.wait(state.tasks, timeout=_SHUTDOWN_S)
        finally:
            acceptor.close()
            for connection in list(connections):
                connection.abort()
            if state.tasks:
                await asyncio.wait(state.tasks, timeout=_ABORT_S)  # a stream ends when its client is gone
            for task in state.tasks:
                task.cancel()

    def stop(self) -> None:
        self._stopping.set()


def http_api(
    host: str,
    port: int,
    handler: HttpHandler,
    *,
    security: HttpSecurity | None = None,
    names: Collection[str] = (),
    limits: HttpLimits | None = None,
) -> HttpServer:
    """The server of an API with whole requests. `names` are the names, besides `host`, to which a server without a
    login answers."""
    has_login = security is not None and security.has_login
    doors = HttpDoors(None if has_login else [host, *names])
    gate = HttpGate(application(handler), doors, security=security)
    return HttpServer(host, port, gate, security=security, limits=limits)


class _Flow(FlowControl):
    """Reads nothing while the application (`is_paused`), or what was received before, is to be waited for."""

    def __init__(self, transport: asyncio.Transport, on_resume: Callable[[], None]) -> None:
        super().__init__(transport)
        self._reading = transport
        self._on_resume = on_resume
        self.is_paused = self._is_held = False

    def pause_reading(self) -> None:
        self.is_paused = True
        self._apply()

    def resume_reading(self) -> None:
        self.is_paused = False
        self._apply()
        self._on_resume()

    def hold(self, is_held: bool) -> None:
        self._is_held = is_held
        self._apply()

    def _apply(self) -> None:
        if self._reading.is_closing():
            return
        self.read_paused = self.is_paused or self._is_held
        if self.read_paused:  # also if the transport reads: uvicorn resumes it when a body ends after its response
            self._reading.pause_reading()
        else:
            self._reading.resume_reading()


class _Requests(H11Protocol):
    """The requests of one connection. What is received is parsed in pieces, and the addresses take turns: a piece of
    tiny chunks takes milliseconds, and the application begins to answer one request in a turn of the loop."""

    def __init__(
        self,
        connection: AcceptedHttpConnection,
        connections: set[AcceptedHttpConnection],
        limits: HttpLimits,
        turns: TurnTaking,
        config: Config,
        state: ServerState,
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.logger = _QUIET
        self._connection = connection
        self._connections = connections
        self._limits = limits
        self._turns = turns
        self._unread = bytearray()
        self._is_in_turn = self._has_events = False
        self.share = turns.turns.share("", address_group(connection.host), self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream always
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport, self._wait_for_turn)
        self._connections.add(self._connection)
        if self._connection.is_secure:
            self.scheme = "https"

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self._connection)
        self._unread.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self.flow.hold(True)
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        if self._has_events or (self._unread and not self.flow.is_paused):
            self._turns.wait(self)

    def find_share(self) -> Share:
        return self.share

    def start_waiting(self) -> None:
        """Parse a piece of what was received: it is the turn of this connection."""
        if self.transport.is_closing():
            return
        began = self._turns.clock()
        self.server_state.default_headers = [(b"Date", formatdate(usegmt=True).encode())]
        cycle = self.cycle
        self._is_in_turn = True
        try:
            if self._has_events:
                self._has_events = False
                self.handle_events()
            elif not self.flow.is_paused:
                piece = bytes(self._unread[:_PIECE_BYTES])
                del self._unread[:_PIECE_BYTES]
                super().data_received(piece)
        finally:
            self._is_in_turn = False
        if self.conn.their_state is h11.IDLE:  # no application waits for a body
            self.flow.is_paused = False
        self._judge()
        self.flow.hold(bool(self._unread))
        self._wait_for_turn()
        cost = REQUEST_S if self.cycle is cycle else TURN_S
        self._turns.left -= cost + self._turns.clock() - began

    def handle_events(self) -> None:
        if self._is_in_turn:
            super().handle_events()
        else:  # a response is complete, and the client may have sent the next request already
            self._has_events = True
            self._wait_for_turn()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's returns nothing
        """The client sends nothing more. It still gets the answer to a whole request, but no stream goes on."""
        is_whole = self._is_answering and self.conn.their_state is not h11.SEND_BODY
        if is_whole and not self.cycle.response_started:
            self.cycle.keep_alive = False
            return True
        return False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._judge()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._judge()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._judge()

    def send_400_response(self, msg: str) -> None:
        if self._is_answering:  # the error is in the body: the application reads that its client is gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with contextlib.suppress(h11.LocalProtocolError):  # the answer to a HEAD may not have this body
                super().send_400_response(msg)
                return
        self._connection.abort()

    def fail(self) -> None:
        self._connection.abort()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _judge(self) -> None:
        """Say for what the connection waits, or that a request is being handled."""
        connection, limits, theirs = self._connection, self._limits, self.conn.their_state
        if self.transport.is_closing():
            connection.wait("end", limits.receipt_s)
        elif self.flow.write_paused:
            connection.wait("receipt", limits.receipt_s)
        elif theirs is h11.SEND_BODY:
            connection.wait("body", limits.body_s)
            if self._is_answering and self.cycle.body:
                self.flow.pause_reading()  # until the application reads the body
        elif self._is_answering:
            connection.handle()
        elif theirs is h11.IDLE and self.conn.trailing_data[0]:
            connection.wait("head", limits.head_s)
        elif self.cycle is not None:
            connection.wait("request", limits.idle_s)


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
