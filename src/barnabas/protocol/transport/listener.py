"""Shell: one listening socket and the connections it accepted.

`serve` returns after `stop`, or when it is cancelled; it then closes every accepted connection and cancels the tasks of
unanswered requests. Listeners that are given the same `RequestBudget`, `TurnTaking` and `ConnectionQuotas` share their
limits, and those with the same `ClientMeter` are counted together.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.core.telemetry import Metrics, get_logger
from barnabas.protocol.security.principal_builder import AuthenticationContext
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.admission import Admission
from barnabas.protocol.transport.connection_quotas import UNLIMITED, ConnectionLimits, ConnectionQuotas
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.limits import OccasionalWarning, RequestBudget, TransportConfig
from barnabas.protocol.transport.ports import ClientMeter, Peer, RequestHandler, Usage
from barnabas.protocol.transport.turn_taking import TurnTaking
from barnabas.protocol.wire.frame_buffer import ReceiveMemory

if TYPE_CHECKING:
    from barnabas.protocol.security.principal_builder import PrincipalBuilder
    from barnabas.protocol.transport.listener_security import ListenerSecurity

log = get_logger("barnabas.protocol.transport")
_WARNING_EVERY_S: Final = 10.0
BACKLOG: Final = 1024
"""The limit for connections that wait to be accepted."""
_REUSED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Memory that a listener keeps for its next large requests."""
_connection_ids = itertools.count(1)


class Listener:
    """Accepts connections for one endpoint and passes their requests to one handler."""

    def __init__(
        self,
        endpoint: ListenerEndpoint,
        handler: RequestHandler,
        limits: TransportConfig,
        metrics: Metrics,
        *,
        quotas: ConnectionQuotas | None = None,
        budget: RequestBudget | None = None,
        turns: TurnTaking | None = None,
        clients: ClientMeter | None = None,
        sock: socket.socket | None = None,
        security: ListenerSecurity | None = None,
        principals: PrincipalBuilder | None = None,
    ) -> None:
        """`security` is None for a PLAINTEXT listener. `clients` counts what clients use, and the listener's bytes."""
        self.metrics = metrics
        self.endpoint = endpoint
        self.handler = handler
        self.limits = limits
        self.quotas = quotas or ConnectionQuotas(ConnectionLimits(UNLIMITED, UNLIMITED, UNLIMITED, {}, {}))
        self.budget = budget or RequestBudget(limits)
        self.memory = ReceiveMemory(reused_bytes_max=_REUSED_BYTES_MAX, preallocated_bytes_max=0)
        self.received_bytes = metrics.counter(
            "barnabas_net_received_bytes_total", "Bytes read from clients.", listener=endpoint.name
        )
        self.sent_bytes = metrics.counter(
            "barnabas_net_sent_bytes_total", "Bytes written to clients.", listener=endpoint.name
        )
        metrics.gauge(
            "barnabas_net_connections", "Open connections.", lambda: len(self._connections), listener=endpoint.name
        )
        self._principals = principals
        self._refusals = OccasionalWarning(_WARNING_EVERY_S)
        self._drops = OccasionalWarning(_WARNING_EVERY_S)
        self._admission = Admission(endpoint.name, self.quotas, metrics, lambda: self.now(), self._enter)
        self.quotas.add_listener(self)
        self._connections: dict[AcceptedConnection, None] = {}  # a dict keeps the order, so simulations can be replayed
        self.turns = turns or TurnTaking()
        self.clients = clients
        self._sock = sock
        self._server: asyncio.Server | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._request_tasks: dict[asyncio.Task[None], None] = {}
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.now: Callable[[], float] = time.monotonic
        """The time of the event loop's clock; `bind` sets it."""
        self.new_connection: Callable[[], AcceptedConnection] = lambda: AcceptedConnection(self)
        """Creates the protocol of an accepted connection."""
        if security is not None:
            from barnabas.protocol.transport.secure_connection import SecureListening

            self.new_connection = SecureListening(self, security).connection

    async def bind(self) -> ListenerEndpoint:
        """Bind the port, and return the endpoint with that port. Raises OSError if the port is in use.

        Until `serve` is called, a connection attempt is refused at once, so that the client can try another node.
        """
        sock = self._sock or bound_socket(self.endpoint)
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self.turns.use(self._loop)
        self._server = await self._loop.create_server(
            self.new_connection, sock=sock, backlog=BACKLOG, start_serving=False
        )
        self.endpoint = self.endpoint.with_port(sock.getsockname()[1])
        return self.endpoint

    async def serve(self) -> None:
        """Accept connections until `stop`. The tasks of all connections end with this call."""
        assert self._server is not None, "bind first"
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                sweeper = tasks.create_task(self._sweep_idle())
                await self._server.start_serving()
                await self._stopped.wait()
                self._close_all()
                sweeper.cancel()
                for task in list(self._request_tasks):
                    task.cancel()
        finally:
            self._close_all()

    def replace_handler(self, handler: RequestHandler) -> None:
        """Use `handler` for all later requests. Open connections are closed, because the API versions that their
        clients know are those of the previous handler.
        """
        self.handler = handler
        for connection in list(self._connections):
            connection.close("the listener has a new request handler", expected=True)

    def stop(self) -> None:
        """Accept no more connections, close the open ones, and let `serve` return."""
        if self._server is not None:
            self._server.close()
        self._stopped.set()

    # ---- for accepted connections

    def accept(self, connection: AcceptedConnection, transport: asyncio.Transport) -> None:
        """Call the connection's `enter`, now or later, or its `refuse`. Its client pays for the time."""
        clock = self.turns.clock  # another one while connections wait
        began = clock()
        self._admission.accept(connection, transport)
        self.turns.charge(connection, clock() - began)

    def new_usage(self) -> Usage:
        """The numbers of a new connection."""
        return Usage() if self.clients is None else self.clients.new_usage(self.received_bytes, self.sent_bytes)

    def _enter(self, connection: AcceptedConnection, host: str, port: int) -> None:
        self._connections[connection] = None
        endpoint = self.endpoint
        peer = Peer(
            next(_connection_ids), endpoint.name, endpoint.security_protocol, host, port, usage=connection.usage
        )
        connection.enter(peer)
        if endpoint.security_protocol == "PLAINTEXT" and self._principals is not None:
            self.set_principal(connection, peer, ANONYMOUS)

    def set_principal(
        self, connection: AcceptedConnection, peer: Peer, principal: KafkaPrincipal, certificate: bytes | None = None
    ) -> bool:
        """Set the principal of a connection. Returns False if the class of `principal.builder.class` has refused the
        connection, which is closed."""
        if self._principals is None:
            peer.principal = principal
            return True
        context = AuthenticationContext(peer.listener, peer.security_protocol, peer.host, principal, certificate)
        try:
            peer.principal = self._principals.build(context)
        except Exception as error:  # noqa: BLE001 - an error of the class of a user ends this connection only
            count = self._refusals.count(self.now())
            if count:
                reason = f"{type(error).__name__}: {error}"
                log.warning("principal.builder.class refuses connections", last=str(peer), reason=reason, count=count)
            connection.close(f"principal.builder.class: {error}", expected=True)
            return False
        return True

    @property
    def name(self) -> str:
        """The name of the listener."""
        return self.endpoint.name

    def on_slot_free(self) -> None:
        self._admission.admit_waiting()

    @property
    def connections(self) -> Sequence[AcceptedConnection]:
        """The admitted connections."""
        return list(self._connections)

    def forget(self, connection: AcceptedConnection) -> None:
        self._connections.pop(connection, None)
        if connection.peer is None:
            self._admission.forget(connection)
        else:
            self.quotas.release(self.endpoint.name, connection.peer.host)

    def on_dropped(self, connection: AcceptedConnection) -> None:
        """The connection is closed because its client does not receive its responses."""
        count = self._drops.count(self.now())
        if count:
            reason = "their clients do not receive the responses, and too many bytes wait for all clients together"
            log.warning("connections closed", last=str(connection.peer), reason=reason, count=count)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._tasks is not None
        task = self._tasks.create_task(coroutine)
        self._request_tasks[task] = None
        task.add_done_callback(lambda done: self._request_tasks.pop(done, None))
        return task

    # ---- inside

    async def _sweep_idle(self) -> None:
        """Close idle connections (connections.max.idle.ms). A periodic check is cheaper than a timer per connection."""
        idle_s = self.limits.connections_max_idle_ms / 1000
        if idle_s <= 0:
            return
        while True:
            await asyncio.sleep(min(max(idle_s / 4, 0.05), 30.0))
            horizon = self.now() - idle_s
            for connection in list(self._connections):
                if connection.idle and connection.last_active < horizon:
                    connection.close("idle longer than connections.max.idle.ms", expected=True)

    def _close_all(self) -> None:
        if self._server is not None:
            self._server.close()
        self._admission.close()
        for connection in list(self._connections):
            connection.close("the broker is shutting down", expected=True)


def listening_socket(endpoint: ListenerEndpoint) -> socket.socket:
    """A listening socket; connections wait to be accepted. An empty host means every interface. Raises OSError."""
    sock = bound_socket(endpoint)
    try:
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def bound_socket(endpoint: ListenerEndpoint) -> socket.socket:
    """A socket that is bound but does not listen: connections are refused until then. Raises OSError."""
    host = endpoint.host
    # getaddrinfo encodes a str with IDNA, whose tables take half a megabyte of memory; it takes bytes as they are.
    name = host.encode() if host.isascii() else host
    infos = socket.getaddrinfo(name or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    infos.sort(key=lambda info: info[0] != socket.AF_INET)
    family, kind, proto, _, address = infos[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
