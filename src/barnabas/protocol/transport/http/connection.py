"""Shell: the accepted connections of any HTTP server: their slots, their TLS, and the deadlines of their clients.

    acceptor = HttpAcceptor(sock, slots, lambda: AcceptedHttpConnection(slots, security, build))

`build` makes the protocol that reads requests. It gets the plain bytes, writes to a transport as usual, and says for
what the connection waits (`wait`), or that a request is being handled (`handle`). A connection that waits for its
client makes room for others (`slots.py`). TLS is `tls_transport.py`, so that a handshake has a slot and a deadline.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from barnabas.protocol.transport.http.slots import HttpSlots
from barnabas.protocol.transport.tls_transport import TlsTransport

if TYPE_CHECKING:
    from barnabas.protocol.transport.http.security import HttpSecurity

HEAD_S: Final = 10.0
"""The time for the handshake of TLS and the first head together, and for each further head."""
_PAUSE_S: Final = 1.0
_TLS_BLOCK: Final = memoryview(bytearray(64 * 1024))
"""Decrypted bytes on their way to the protocol, of all connections."""


class HttpAcceptor:
    """Accepts the connections of a listening socket until `close`. uvloop's own server accepts one in each turn of the
    loop, so that on a busy loop a probe would wait behind very many connections that others have opened.

    In a turn this one accepts a quarter of the slots of an address, so that a request that has arrived is read before
    its connection makes room for later ones.
    """

    def __init__(self, sock: socket.socket, slots: HttpSlots, build: Callable[[], asyncio.Protocol]) -> None:
        self._sock = sock
        self._build = build
        self._of_turn = max(1, slots.of_address // 4)
        self._loop = asyncio.get_running_loop()
        self._accepting: set[asyncio.Task[object]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._start()

    def _start(self) -> None:
        self._paused = None
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(self._of_turn):
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left: the connections wait until some are closed
                self._loop.remove_reader(self._sock.fileno())
                self._paused = self._loop.call_later(_PAUSE_S, self._start)
                return
            accepted.setblocking(False)
            task = asyncio.ensure_future(self._begin(accepted))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._build, accepted)
        except OSError:
            accepted.close()  # the client has gone

    def close(self) -> None:
        """Accept no more connections, and close the socket."""
        if self._paused is not None:
            self._paused.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()


class AcceptedHttpConnection(asyncio.Protocol):
    """One connection. `security` may be without TLS."""

    def __init__(
        self,
        slots: HttpSlots,
        security: HttpSecurity | None,
        build: Callable[[AcceptedHttpConnection], asyncio.Protocol],
        *,
        head_s: float = HEAD_S,
    ) -> None:
        self._slots = slots
        self._security = security
        self._build = build
        self._head_s = head_s
        self._inner: asyncio.Protocol | None = None
        self._tls: TlsTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._owed = ""
        self.host = ""
        """The address of the client."""

    @property
    def is_secure(self) -> bool:
        return self._tls is not None

    # ---- for the protocol of requests

    def wait(self, owed: str, seconds: float) -> None:
        """The connection waits for its client, which owes this. The drops of a slow client do not move the deadline:
        it is set when another thing is owed."""
        if owed != self._owed:
            self._expect(owed, seconds)
            self._slots.wait(self)

    def handle(self) -> None:
        """A request of the connection is being handled."""
        if self._owed:
            self._expect("", None)
            self._slots.handle(self)

    def move(self, slots: HttpSlots) -> bool:
        """Exchange the slot for one of `slots`; False if there is no room."""
        if not slots.enter(self, self.host):
            return False
        self._slots.leave(self)
        self._slots = slots
        slots.handle(self)
        return True

    def abort(self) -> None:
        """Close the connection at once: it makes room, or its client is too slow."""
        self._raw.abort()

    def _expect(self, owed: str, seconds: float | None) -> None:
        self._owed = owed
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = None if seconds is None else loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self._raw.get_write_buffer_size():
            self.abort()
        else:
            self._raw.close()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        if not self._slots.enter(self, self.host):
            self.abort()
            return
        self._expect("head", self._head_s)
        context = None
        if self._security is not None:
            self._security.refresh()
            context = self._security.context
        if context is None:
            self._begin(self._raw)
        else:
            self._tls = TlsTransport(self._raw, context)

    def _begin(self, transport: asyncio.Transport) -> None:
        self._inner = self._build(self)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._tls is None:
            if self._inner is not None:
                self._inner.data_received(data)
            return
        self._tls.receive(data)
        try:
            if self._inner is None:
                if not self._tls.shake_hands():
                    return
                self._begin(self._tls)
            assert self._inner is not None
            while not self._raw.is_closing() and (count := self._tls.read_into(_TLS_BLOCK)):
                self._inner.data_received(bytes(_TLS_BLOCK[:count]))
        except ssl.SSLError:
            self._raw.close()
            return
        if self._tls.ended:
            self._tls.close()

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("", None)
        self._slots.leave(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()
