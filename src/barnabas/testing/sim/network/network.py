"""Shell: all hosts, links and connections of one world, and the network faults between hosts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.testing.sim.errors import RealWorldError
from barnabas.testing.sim.network.links import OUTSIDE, NetworkLink
from barnabas.testing.sim.network.servers import SimServer, SimSocket
from barnabas.testing.sim.network.transport import SimConnection, SimTransport
from barnabas.testing.sim.process import CURRENT, Process
from barnabas.testing.sim.trace import Trace

if TYPE_CHECKING:
    from barnabas.testing.sim.loop import SimLoop

_SEGMENT: Final = 64 * 1024
_EPHEMERAL: Final = 40_000


class SimNetwork:
    """All hosts, links and connections of one world."""

    give_up_s = 120.0
    """Seconds for which sent bytes may stay unacknowledged before a connection breaks (the effect of
    `tcp_retries2`)."""

    def __init__(self, loop: SimLoop, rng: random.Random, trace: Trace) -> None:
        self.default = NetworkLink()
        self.on_accepted: Callable[[str, Any], None] = lambda host, protocol: None
        """Called with the host and the protocol object of each connection that a server has accepted."""
        self._loop = loop
        self._rng = rng
        self._trace = trace
        self._links: dict[tuple[str, str], NetworkLink] = {}
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._down: dict[str, None] = {}
        self._ports: dict[str, int] = {}
        self._connections: dict[SimConnection, None] = {}
        self._count = 0

    # ---- faults

    def link(self, source: str, target: str) -> NetworkLink:
        """The link of one direction, which the caller may change. A new link has the default values."""
        found = self._links.get((source, target))
        if found is None:
            base = self.default
            found = NetworkLink(base.delay_min, base.delay_max, base.bandwidth, base.loss)
            self._links[source, target] = found
        return found

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Cuts the link from `source` to `target`; with `both` also the opposite direction."""
        self.link(source, target).cut = True
        if both:
            self.link(target, source).cut = True

    def heal(self) -> None:
        """Resets every link to the default values."""
        self._links.clear()
        for connection in list(self._connections):
            connection.retry()

    def reset_connections(self, a: str, b: str) -> int:
        """Resets all connections between two hosts at both ends, as a restarted firewall does. Returns their number."""
        hit = [c for c in self._connections if {c.client.host, c.server.host} == {a, b}]
        for connection in hit:
            connection.client.break_with(ConnectionResetError(104, "Connection reset by peer"))
            connection.server.break_with(ConnectionResetError(104, "Connection reset by peer"))
        return len(hit)

    def carries(self, source: str, target: str) -> bool:
        """Whether packets from `source` reach `target`."""
        return source not in self._down and target not in self._down and not self.link(source, target).cut

    # ---- hosts and processes

    def process_died(self, process: Process) -> None:
        """The kernel closes the sockets of a killed process. Written bytes are still sent; if the process had unread
        bytes, the peer gets a reset."""
        for server in [s for s in self._listeners.values() if s.process is process]:
            server.close()
        for transport in list(process.transports):
            transport.kernel_closes()

    def host_down(self, host: str, processes: list[Process]) -> None:
        """The host loses power: no socket is closed, and the host sends no packets any more."""
        self._down[host] = None
        for process in processes:
            for transport in list(process.transports):
                transport.falls_silent()
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]

    def host_up(self, host: str) -> None:
        """The host starts without knowledge of older connections, and resets those on which a packet arrives."""
        self._down.pop(host, None)
        for connection in list(self._connections):
            connection.forgotten_by(host)

    # ---- the event loop's side

    def listen(self, host: str, endpoint: ListenerEndpoint) -> SimSocket:
        """Returns a simulated socket bound to a port of `host`. Replaces `bound_socket` of the transport
        package, which binds a real socket."""
        port = endpoint.port or self._free_port(host)
        if (host, port) in self._listeners:
            raise OSError(98, f"Address already in use: {host}:{port}")
        return SimSocket(host, port)

    def serve(self, factory: Callable[[], Any], sock: SimSocket) -> SimServer:
        if not isinstance(sock, SimSocket):
            raise RealWorldError("A simulated server needs a simulated socket: SimNetwork.listen creates one.")
        server = SimServer(self, factory, sock, CURRENT.get())
        self._listeners[sock.host, sock.port] = server
        return server

    def forget(self, server: SimServer) -> None:
        if self._listeners.get((server.socket.host, server.socket.port)) is server:
            del self._listeners[server.socket.host, server.socket.port]

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimTransport, Any]:
        """Like `loop.create_connection`. Waits while the host does not answer; raises ConnectionRefusedError if no
        server listens on the port."""
        process = CURRENT.get()
        here = OUTSIDE if process is None else process.host
        retransmit = 1.0
        while True:
            await asyncio.sleep(self.delay(here, host, 60) + self.delay(host, here, 60))
            if self.carries(here, host) and self.carries(host, here):
                break
            if retransmit > 64:
                raise TimeoutError(110, f"Connection to {host}:{port} timed out")
            await asyncio.sleep(retransmit)
            retransmit *= 2
        server = self._listeners.get((host, port))
        if server is None or not server.serving:
            raise ConnectionRefusedError(111, f"Connect call failed ({host}:{port})")
        self._count += 1
        port_here = self._free_port(here)
        connection = SimConnection(self, self._count, (here, process, port_here), (host, server.process, port))
        self._connections[connection] = None
        self._trace.event("net", f"#{connection.number} {here}:{port_here} -> {host}:{port} opened")
        protocol = factory()
        connection.client.attach(protocol)
        connection.server.attach_later(server.factory)
        return connection.client, protocol

    def closed(self, connection: SimConnection) -> None:
        if self._connections.pop(connection, self) is None:
            self._trace.event("net", f"#{connection.number} closed")

    def _free_port(self, host: str) -> int:
        port = self._ports[host] = self._ports.get(host, _EPHEMERAL) + 1
        return port

    # ---- random delays

    def delay(self, source: str, target: str, size: int) -> float:
        """Draws the time that a packet takes now, retransmissions included."""
        link = self.link(source, target)
        rng = self._rng
        delay = link.delay_min + rng.random() ** 3 * (link.delay_max - link.delay_min) + size / link.bandwidth
        retransmission = 0.2
        while link.loss and rng.random() < link.loss and retransmission < 30:
            delay += retransmission
            retransmission *= 2
        return delay

    def segment_of(self, size: int) -> int:
        """Draws how many of `size` bytes are sent as one segment: mostly all of them, sometimes fewer."""
        size = min(size, _SEGMENT)
        return self._rng.randint(1, size) if size > 1 and self._rng.random() < 0.05 else size

    @property
    def loop(self) -> SimLoop:
        return self._loop

    @property
    def trace(self) -> Trace:
        return self._trace
