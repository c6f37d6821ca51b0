"""Shell: one accepted connection of any HTTP server: its slot, its TLS, and the deadlines of its client.

    create_server(lambda: HttpConnection(slots, security, build), ...)

`build` makes the protocol that reads requests. It gets the plain bytes, writes to a transport as usual, and says for
what the connection waits (`wait`), or that a request is being handled (`handle`). A connection that waits for its
client makes room for others (`slots.py`). TLS is `tls_transport.py`, so that a handshake has a slot and a deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from barnabas.protocol.transport.http.slots import HttpSlots
from barnabas.protocol.transport.tls_transport import TlsTransport

if TYPE_CHECKING:
    from barnabas.protocol.transport.http.security import HttpSecurity

HEAD_S: Final = 10.0
"""The time for the handshake of TLS and the first head together, and for each further head."""
_TLS_BLOCK: Final = memoryview(bytearray(64 * 1024))
"""Decrypted bytes on their way to the protocol, of all connections."""


class HttpConnection(asyncio.Protocol):
    """One connection. `security` may be without TLS."""

    def __init__(
        self,
        slots: HttpSlots,
        security: HttpSecurity | None,
        build: Callable[[HttpConnection], asyncio.Protocol],
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
