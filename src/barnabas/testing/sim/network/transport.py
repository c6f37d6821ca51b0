"""Shell: a simulated TCP connection with its two transports, their buffers, and the ways in which a connection ends."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.sim.process import Process, ProcessState

if TYPE_CHECKING:
    from barnabas.testing.sim.network.network import SimNetwork

_WINDOW: Final = 256 * 1024
_NOBODY: Final = Context()
"""The context of the network's own callbacks, which run whether or not the processes run."""


class SimSocketOptions:
    """The socket of the end that has opened a connection, for the options of TCP that it sets."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self._options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._options[level, option] = value

    @property
    def probes(self) -> tuple[int, int, int] | None:
        """Seconds before the first probe and between probes, and their number; None without SO_KEEPALIVE."""
        found = self._options
        if not found.get((socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
            return None
        tcp = socket.IPPROTO_TCP  # with Linux's defaults
        return (
            found.get((tcp, socket.TCP_KEEPIDLE), 7_200),
            found.get((tcp, socket.TCP_KEEPINTVL), 75),
            found.get((tcp, socket.TCP_KEEPCNT), 9),
        )


class SimConnection:
    """A connection: two transports, and the links between their hosts."""

    def __init__(
        self,
        network: SimNetwork,
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
        self.client.options = SimSocketOptions()

    def retry(self) -> None:
        """Sends the waiting segments again, after a link was healed."""
        self.client.resend()
        self.server.resend()

    def forgotten_by(self, host: str) -> None:
        for end in (self.client, self.server):
            if end.host == host and end.silent:
                end.other.on_forgotten()


class SimTransport(asyncio.Transport):
    """One end of a connection. `silent` is set when the host has lost power: the end then neither sends nor
    receives."""

    def __init__(self, connection: SimConnection, host: str, process: Process | None, port: int) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.process = process
        self.other: SimTransport
        self.silent = False
        self.options: SimSocketOptions | None = None
        self.done = False
        """Whether `connection_lost` has been called, or the process that should be called has ended."""
        self._connection = connection
        self._network = connection.network
        self._loop = connection.network.loop
        self._protocol: Any = None
        self._closing = False
        self._buffer: deque[bytes] = deque()  # written, not yet sent
        self._buffered = 0
        self._in_flight = 0  # sent, not yet read by the other program
        self._last_arrival = 0.0
        self._stalled: deque[bytes | None] = deque()  # waiting at a cut link; None is the end of the stream
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
        """Creates the protocol in the listening process, when that process runs next."""
        self._call(lambda: None if self.done else self._accept(factory()))

    def _accept(self, protocol: Any) -> None:
        self._network.on_accepted(self.host, protocol)
        self.attach(protocol)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(function, *args, context=None if self.process is None else self.process.context.copy())

    def _call_at(self, when: float, function: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        context = None if self.process is None else self.process.context.copy()
        return self._loop.call_at(when, function, *args, context=context)

    # ---- asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.other.host, self.other.port
        if name == "socket":
            return default if self.options is None else self.options
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
        """Sends as many bytes from the buffer as the window allows."""
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
        """Sends the end of the stream after the last byte, and then ends this transport."""
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
        self._last_arrival = max(
            self._last_arrival + 1e-9, loop.time() + delay
        )  # timers for the same time have no order
        loop.call_at(self._last_arrival, self._reach, data, context=_NOBODY)

    def _reach(self, data: bytes | None) -> None:
        """Delivers a segment to the other host. If the link is cut, the segment waits and is sent again later."""
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
        """Passes the received bytes to the protocol, in the receiving process."""
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
                self._loop.call_soon(sender._send, context=_NOBODY)  # the kernel sends even for a paused process

    # ---- ends

    def _lose(self, error: Exception | None) -> None:
        """Ends this transport, and schedules `connection_lost` once."""
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
        """Breaks the connection at this end with `error`. Unless `quietly`, the other end gets a reset."""
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
        if self._network.carries(self.host, other.host):  # a lost reset is not repeated; the other end stays half open
            if other._protocol is None and other.process is not None and other.process.state is ProcessState.PAUSED:
                other.done = True
                self._network.closed(self._connection)
                return
            other.break_with(ConnectionResetError(104, "Connection reset by peer"), quietly=True)

    def kernel_closes(self) -> None:
        """The process was killed. The kernel sends the written bytes and then the end of the stream, or a reset if
        there are unread bytes."""
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
        """The host has lost power: this end neither sends nor receives from now on."""
        self.silent = self.done = self._closing = True
        self._inbox.clear()
        self._buffer.clear()
        self._buffered = 0
        if self.process is not None:
            self.process.transports.pop(self, None)
        if self.other.done:
            self._network.closed(self._connection)
        self.other._on_silence()

    def _on_silence(self) -> None:
        """The other host has lost power: probe it, if the program has set SO_KEEPALIVE."""
        probes = None if self.options is None else self.options.probes
        if probes is not None:
            self._loop.call_at(self._loop.time() + probes[0], self._probe, *probes[1:], context=_NOBODY)

    def _probe(self, interval_s: int, left: int) -> None:
        if self.done or self._stalled:  # bytes that wait are sent again, and decide instead of probes
            return
        if self._network.carries(self.host, self.other.host):  # it has restarted, and does not know the connection
            self.break_with(ConnectionResetError(104, "Connection reset by peer"), quietly=True)
        elif left:
            self._loop.call_at(self._loop.time() + interval_s, self._probe, interval_s, left - 1, context=_NOBODY)
        else:
            self.break_with(TimeoutError(110, "Connection timed out"), quietly=True)

    def on_forgotten(self) -> None:
        """The other host has restarted, and answers the next packet of this connection with a reset."""
        if self._stalled or self._in_flight:
            self.break_with(ConnectionResetError(104, "Connection reset by peer"), quietly=True)
