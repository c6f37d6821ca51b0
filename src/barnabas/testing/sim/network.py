"""Shell: a network of hosts in memory, as TCP shows one to programs.

    process A                                                             process B
    transport.write -> send buffer -> window -> [ the link A -> B ] -> receive buffer -> protocol.data_received
                                       ^ stops when B does not read     ^ delay, bandwidth, loss, cut

A program on TCP sees bytes in order, each once, or a broken connection, whatever happens to packets. So a lost packet
is a delay here (a retransmission), duplicates and reordering happen only between connections, and a cut link is
silence: bytes wait, new connections get no answer, and after `give_up_s` the connection breaks. A process that is
killed has its sockets closed by its kernel; a host without power says nothing, and resets what is sent to it once it is
back.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.net.endpoint import Endpoint
from barnabas.testing.sim.errors import RealWorldError
from barnabas.testing.sim.process import CURRENT, Life, Process
from barnabas.testing.sim.trace import Trace

if TYPE_CHECKING:
    from barnabas.testing.sim.loop import SimLoop

OUTSIDE: Final = "outside"
"""The host of code that belongs to no process: the test."""
_WINDOW: Final = 256 * 1024
_SEGMENT: Final = 64 * 1024
_EPHEMERAL: Final = 40_000


@dataclass(slots=True)
class Link:
    """One direction between two hosts. Seconds, bytes a second, probabilities."""

    delay_min: float = 0.000_1
    delay_max: float = 0.002
    bandwidth: float = 125_000_000.0
    loss: float = 0.0
    """Of a packet; each loss costs a retransmission time-out, doubling from 200 ms."""
    cut: bool = False


class Network:
    """All hosts, links and connections of one world."""

    give_up_s = 120.0
    """How long sent bytes may stay unacknowledged before a connection breaks (`tcp_retries2` in effect)."""

    def __init__(self, loop: SimLoop, rng: random.Random, trace: Trace) -> None:
        self.default = Link()
        self._loop = loop
        self._rng = rng
        self._trace = trace
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._down: dict[str, None] = {}
        self._ports: dict[str, int] = {}
        self._connections: dict[Connection, None] = {}
        self._count = 0

    # ---- the weather

    def link(self, source: str, target: str) -> Link:
        """One direction, to look at or to change; it has the default's values until then."""
        found = self._links.get((source, target))
        if found is None:
            base = self.default
            found = Link(base.delay_min, base.delay_max, base.bandwidth, base.loss)
            self._links[source, target] = found
        return found

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Nothing from `source` reaches `target` any more (nor the other way, with `both`)."""
        self.link(source, target).cut = True
        if both:
            self.link(target, source).cut = True

    def heal(self) -> None:
        """Every link is as it was at the beginning."""
        self._links.clear()
        for connection in list(self._connections):
            connection.retry()

    def reset_connections(self, a: str, b: str) -> int:
        """Something in between has forgotten the connections of two hosts: both ends are told."""
        hit = [c for c in self._connections if {c.client.host, c.server.host} == {a, b}]
        for connection in hit:
            connection.client.break_with(ConnectionResetError(104, "Connection reset by peer"))
            connection.server.break_with(ConnectionResetError(104, "Connection reset by peer"))
        return len(hit)

    def carries(self, source: str, target: str) -> bool:
        """What leaves `source` arrives at `target`."""
        return source not in self._down and target not in self._down and not self.link(source, target).cut

    # ---- hosts and processes

    def process_died(self, process: Process) -> None:
        """kill -9: the kernel closes its sockets. What it had written leaves; what it had not read resets the other."""
        for server in [s for s in self._listeners.values() if s.process is process]:
            server.close()
        for transport in list(process.transports):
            transport.kernel_closes()

    def host_down(self, host: str, processes: list[Process]) -> None:
        """Power is gone: no process of the host is there to close anything, and none of its packets leave."""
        self._down[host] = None
        for process in processes:
            for transport in list(process.transports):
                transport.falls_silent()
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]

    def host_up(self, host: str) -> None:
        """It knows nothing of older connections, and resets those on which something arrives."""
        self._down.pop(host, None)
        for connection in list(self._connections):
            connection.forgotten_by(host)

    # ---- the event loop's side

    def listen(self, host: str, endpoint: Endpoint) -> SimSocket:
        """A listening socket on a host: what `net.listener.listening_socket` is on a real one."""
        port = endpoint.port or self._free_port(host)
        if (host, port) in self._listeners:
            raise OSError(98, f"Address already in use: {host}:{port}")
        return SimSocket(host, port)

    def serve(self, factory: Callable[[], Any], sock: SimSocket) -> SimServer:
        if not isinstance(sock, SimSocket):
            raise RealWorldError("A simulated server needs a simulated socket: Network.listen makes one.")
        server = SimServer(self, factory, sock, CURRENT.get())
        self._listeners[sock.host, sock.port] = server
        return server

    def forget(self, server: SimServer) -> None:
        if self._listeners.get((server.socket.host, server.socket.port)) is server:
            del self._listeners[server.socket.host, server.socket.port]

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimTransport, Any]:
        """As `loop.create_connection`: waits as long as nobody answers; refused where nobody listens."""
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
        connection = Connection(self, self._count, (here, process, port_here), (host, server.process, port))
        self._connections[connection] = None
        self._trace.event("net", f"#{connection.number} {here}:{port_here} -> {host}:{port} opened")
        protocol = factory()
        connection.client.attach(protocol)
        connection.server.attach_later(server.factory)
        return connection.client, protocol

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection, self) is None:
            self._trace.event("net", f"#{connection.number} closed")

    def _free_port(self, host: str) -> int:
        port = self._ports[host] = self._ports.get(host, _EPHEMERAL) + 1
        return port

    # ---- chance

    def delay(self, source: str, target: str, size: int) -> float:
        """How long a packet takes now, retransmissions included."""
        link = self.link(source, target)
        rng = self._rng
        delay = link.delay_min + rng.random() ** 3 * (link.delay_max - link.delay_min) + size / link.bandwidth
        retransmission = 0.2
        while link.loss and rng.random() < link.loss and retransmission < 30:
            delay += retransmission
            retransmission *= 2
        return delay

    def segment_of(self, size: int) -> int:
        """How many of `size` bytes go together: mostly all, now and then cut anywhere."""
        size = min(size, _SEGMENT)
        return self._rng.randint(1, size) if size > 1 and self._rng.random() < 0.05 else size

    @property
    def loop(self) -> SimLoop:
        return self._loop

    @property
    def trace(self) -> Trace:
        return self._trace


class SimSocket:
    """What a listener needs of a listening socket."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def close(self) -> None:
        """The server it was given to holds the port."""


class SimServer(asyncio.AbstractServer):
    """Accepts connections for one port."""

    def __init__(self, network: Network, factory: Callable[[], Any], sock: SimSocket, process: Process | None) -> None:
        self.factory = factory
        self.socket = sock
        self.process = process
        self.serving = False
        self._network = network

    async def start_serving(self) -> None:
        self.serving = True

    def is_serving(self) -> bool:
        return self.serving

    def close(self) -> None:
        self.serving = False
        self._network.forget(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def serve_forever(self) -> None:
        raise NotImplementedError

    async def wait_closed(self) -> None:
        """Closing takes no time."""


class Connection:
    """Two transports and the links between their hosts."""

    def __init__(
        self,
        network: Network,
        number: int,
        client: tuple[str, Process | None, int],
        server: tuple[str, Process | None, int],
    ) -> None:
        self.network = network
        self.number = number
        self.client = SimTransport(self, *client)
        self.server = SimTransport(self, *server)
        self.client.other = self.server
        self.server.other = self.client

    def retry(self) -> None:
        """The weather is better: what waited is sent again."""
        self.client.resend()
        self.server.resend()

    def forgotten_by(self, host: str) -> None:
        for end in (self.client, self.server):
            if end.host == host and end.silent:
                end.other.on_forgotten()


class SimTransport(asyncio.Transport):
    """One end. `silent` is an end whose host has lost power: it takes nothing and says nothing."""

    def __init__(self, connection: Connection, host: str, process: Process | None, port: int) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.process = process
        self.other: SimTransport
        self.silent = False
        self.done = False
        """connection_lost has been called, or there is nobody left to call."""
        self._connection = connection
        self._network = connection.network
        self._loop = connection.network.loop
        self._protocol: Any = None
        self._closing = False
        self._buffer: deque[bytes] = deque()  # written, not yet sent
        self._buffered = 0
        self._in_flight = 0  # sent, not yet taken by the other program
        self._last_arrival = 0.0
        self._stalled: deque[bytes | None] = deque()  # met a cut link on the way; None is the end of the stream
        self._stalled_since: float | None = None
        self._inbox: deque[bytes | None] = deque()  # arrived, not read
        self._reading = True
        self._finished = False  # our end of stream has been sent
        self._full = False
        self._high, self._low = 64 * 1024, 16 * 1024
        if process is not None:
            process.transports[self] = None

    # ---- set-up

    def attach(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def attach_later(self, factory: Callable[[], Any]) -> None:
        """In the process that listens, when it next runs."""
        self._call(lambda: None if self.done else self.attach(factory()))

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(function, *args, context=None if self.process is None else self.process.context.copy())

    def _call_at(self, when: float, function: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        context = None if self.process is None else self.process.context.copy()
        return self._loop.call_at(when, function, *args, context=context)

    # ---- asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.other.host, self.other.port
        return (self.host, self.port) if name == "sockname" else default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._inbox:
                self._call(self._read)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Any) -> None:
        if self.done or self._closing:
            return
        data = b"".join(list_of_data)
        if not data:
            return
        self._buffer.append(data)
        self._buffered += len(data)
        self._send()
        if self._buffered > self._high and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._finish()

    def abort(self) -> None:
        if self.done:
            return
        self._closing = True
        self._lose(None)
        self._send_reset()

    # ---- sending

    def _send(self) -> None:
        """Move what the window allows from the buffer to the link."""
        network, buffer = self._network, self._buffer
        while buffer and self._in_flight < _WINDOW and not self.silent:
            data = buffer.popleft()
            size = network.segment_of(len(data))
            if size < len(data):
                buffer.appendleft(data[size:])
                data = data[:size]
            self._buffered -= size
            self._in_flight += size
            self._put_on_link(data)
        if self._full and self._buffered <= self._low and not self.done:
            self._full = False
            self._call(self._protocol.resume_writing)
        self._finish()

    def _finish(self) -> None:
        """After the last byte the end of the stream; then this end is over."""
        if self._closing and not self._buffer and not self._finished and not self.silent:
            self._finished = True
            self._put_on_link(None)
            if not self.done:
                self._lose(None)

    def _put_on_link(self, data: bytes | None) -> None:
        other, loop = self.other, self._loop
        if self._stalled:
            self._stalled.append(data)
            return
        delay = self._network.delay(self.host, other.host, len(data or b""))
        self._last_arrival = max(self._last_arrival + 1e-9, loop.time() + delay)  # timers of one time have no order
        loop.call_at(self._last_arrival, self._reach, data, context=_NOBODY)

    def _reach(self, data: bytes | None) -> None:
        """A segment is at the other host, or lost on the way there (then it is sent again later)."""
        network, other = self._network, self.other
        if self._stalled or not network.carries(self.host, other.host):
            self._stall(data)
            return
        if other.done:
            self.break_with(ConnectionResetError(104, "Connection reset by peer"), quietly=True)
            return
        checksum = 0 if data is None else zlib.crc32(data)
        network.trace.count(self._connection.number, self is self._connection.client, len(data or b""), checksum)
        other._inbox.append(data)
        if other._reading:
            other._call(other._read)

    def _stall(self, data: bytes | None) -> None:
        if self._stalled_since is None:
            self._stalled_since = self._loop.time()
            self._loop.call_at(
                self._stalled_since + self._network.give_up_s, self._give_up, self._stalled_since, context=_NOBODY
            )
        self._stalled.append(data)

    def _give_up(self, since: float) -> None:
        if self._stalled_since == since:
            self.break_with(TimeoutError(110, "Connection timed out"))

    def resend(self) -> None:
        if self._stalled:
            waiting, self._stalled = self._stalled, deque()
            self._stalled_since = None
            for data in waiting:
                self._put_on_link(data)

    # ---- receiving

    def _read(self) -> None:
        """In the receiving process: hand over what has arrived."""
        inbox, sender = self._inbox, self.other
        while inbox and self._reading and not self.done and self._protocol is not None:
            data = inbox.popleft()
            if data is None:
                if not self._closing and not self._protocol.eof_received():
                    self.close()
                return
            sender._in_flight -= len(data)
            if not self._closing:
                self._protocol.data_received(data)
            if sender._buffer:
                self._loop.call_soon(sender._send, context=_NOBODY)  # its kernel does, paused or not

    # ---- ends

    def _lose(self, error: Exception | None) -> None:
        """This end is over: the program is told once, and soon."""
        if self.done:
            return
        self.done = True
        self._closing = True
        self._inbox.clear()
        if self.process is not None:
            self.process.transports.pop(self, None)
        if self._protocol is not None:
            self._call(self._protocol.connection_lost, error)
        if self.other.done:
            self._network.closed(self._connection)

    def break_with(self, error: Exception, *, quietly: bool = False) -> None:
        """The connection is no more, as seen from this end."""
        self._buffer.clear()
        self._buffered = 0
        self._stalled.clear()
        self._stalled_since = None
        if not self.done:
            self._lose(error)
        if not quietly:
            self._send_reset()

    def _send_reset(self) -> None:
        if self.silent or self.other.done:
            return
        delay = self._network.delay(self.host, self.other.host, 60)
        self._loop.call_at(self._loop.time() + delay, self._reach_reset, context=_NOBODY)

    def _reach_reset(self) -> None:
        other = self.other
        if self._network.carries(self.host, other.host):  # a lost reset is not repeated: the other end is half open
            if other._protocol is None and other.process is not None and other.process.life is Life.PAUSED:
                other.done = True
                self._network.closed(self._connection)
                return
            other.break_with(ConnectionResetError(104, "Connection reset by peer"), quietly=True)

    def kernel_closes(self) -> None:
        """The program died. Its kernel sends what was written, then the end; unread bytes make it a reset."""
        unread = bool(self._inbox)
        self.done = True
        self._closing = True
        self._inbox.clear()
        if self.process is not None:
            self.process.transports.pop(self, None)
        if self.other.done:
            self._network.closed(self._connection)
        if unread:
            self._buffer.clear()
            self._send_reset()
        else:
            self._send()

    def falls_silent(self) -> None:
        """The host has lost power."""
        self.silent = self.done = self._closing = True
        self._inbox.clear()
        self._buffer.clear()
        self._buffered = 0
        if self.process is not None:
            self.process.transports.pop(self, None)
        if self.other.done:
            self._network.closed(self._connection)

    def on_forgotten(self) -> None:
        """The other host has rebooted: the first thing it gets of this connection makes it say so."""
        if self._stalled or self._in_flight:
            self.break_with(ConnectionResetError(104, "Connection reset by peer"), quietly=True)


_NOBODY: Final = Context()
"""The network's own context: it runs whatever becomes of processes."""
