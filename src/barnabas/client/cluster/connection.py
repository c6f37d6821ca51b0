"""Shell: one connection to one broker, an `asyncio.BufferedProtocol` around the sans-IO `ClientConnection`.

`send` writes at once and returns a future, so that the order of two sends is the order on the wire. Responses come back
in that order too; a request that passes its deadline therefore takes the connection with it (as Kafka's NetworkClient
does): nothing behind it could be answered sooner. A connection is used once; `Cluster` opens the next one.

Answers are received where they stay (`wire.frame_buffer`); the records in them are views of that memory.
Only the running loop's transports and timers are used: no threads, no clock of its own, no socket of its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from barnabas.client.cluster.tls import handshake_error, is_refusal
from barnabas.client.cluster.versions import BrokerVersions
from barnabas.client.errors import BrokerUnreachableError, RequestTimeoutError
from barnabas.core.errors import BarnabasError
from barnabas.protocol.wire.client_conn import RESPONSE_BYTES_MAX, ClientConnection
from barnabas.protocol.wire.frame_buffer import FrameBuffer

OnAnswer = Callable[[Any, BarnabasError | None], None]
"""Called once: with the response, or with None and what went wrong."""

WRITE_HIGH_WATER_BYTES = 4 * 1024 * 1024
"""Above this many unsent bytes `drain` waits."""


class Connection(asyncio.BufferedProtocol):
    """A connection that is open, or has been. Made by `open_connection`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client_id: str | None, peer: str) -> None:
        self.peer = peer
        self.versions = BrokerVersions({})
        self.last_used = loop.time()
        self._loop = loop
        self._wire = ClientConnection(client_id)
        self._frames = FrameBuffer(RESPONSE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, tuple[OnAnswer, asyncio.TimerHandle | None, str]] = {}
        self._failure: BarnabasError | None = None
        self._answered = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.Event()

    # -- asyncio.BufferedProtocol ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.target()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._answer(*self._wire.read(frame))
        except BarnabasError as error:
            self.abort(
                BrokerUnreachableError(
                    f"{self.peer} sent something that is not a Kafka response ({error}). Is this the right port, and"
                    " does security.protocol match the listener?"
                )
            )

    def data_received(self, data: bytes) -> None:
        """For transports in memory, which have bytes and no socket to receive from."""
        rest = memoryview(data)
        while len(rest):
            target = self._frames.target()
            count = min(len(target), len(rest))
            target[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]

    def _answer(self, correlation_id: int, response: Any) -> None:
        entry = self._pending.pop(correlation_id, None)
        if entry is None:
            return
        on_answer, timer, _ = entry
        if timer is not None:
            timer.cancel()
        self._answered = True
        on_answer(response, None)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError) and is_refusal(exc):
            self._fail(handshake_error(self.peer, exc))
        because = f": {exc}" if exc else ""
        waiting = f" with {len(self._pending)} requests unanswered" if self._pending else ""
        self._fail(BrokerUnreachableError(f"{self.peer} closed the connection{waiting}{because}.{self._tls_hint()}"))
        self._writable.set()
        self.closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- for the rooms above ---------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def send(
        self, message: Any, version: int, deadline: float | None = None, *, expect_response: bool = True
    ) -> asyncio.Future[Any]:
        """Write a request now; the future gives its decoded response.

        Raises nothing: what goes wrong is in the future. `deadline` is in seconds of the loop's clock.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        try:
            self._write(message, version, deadline, partial(_settle, future) if expect_response else None)
        except BarnabasError as error:
            future.set_exception(error)
            return future
        if not expect_response:
            future.set_result(None)
        return future

    def post(self, message: Any, version: int, deadline: float, on_answer: OnAnswer) -> None:
        """`send` for who is in a hurry: `on_answer` is called by what reads the socket, a turn of the loop earlier
        than a future's callback would be. It must not raise, and is never called before `post` returns.
        """
        try:
            self._write(message, version, deadline, on_answer)
        except BarnabasError as error:
            self._loop.call_soon(on_answer, None, error)

    def _write(self, message: Any, version: int, deadline: float | None, on_answer: OnAnswer | None) -> None:
        if not self.alive or self._transport is None:
            raise self._failure or BrokerUnreachableError(f"The connection to {self.peer} is closed.")
        correlation_id, parts = self._wire.send(message, version, expect_response=on_answer is not None)
        self.last_used = self._loop.time()
        if on_answer is not None:
            timer = None
            if deadline is not None:
                timer = self._loop.call_at(deadline, self._on_timeout, correlation_id)
            self._pending[correlation_id] = (on_answer, timer, type(message).__name__)
        self._transport.writelines(parts)

    def size_socket(self, send_bytes: int, receive_bytes: int) -> None:
        """SO_SNDBUF and SO_RCVBUF, where there is a socket; -1 leaves them alone."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is None:
            return
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if size >= 0:
                found.setsockopt(socket.SOL_SOCKET, option, size)

    async def drain(self) -> None:
        """Wait until the unsent bytes are below the high-water mark, or the connection is gone."""
        await self._writable.wait()

    def abort(self, reason: BarnabasError | None = None) -> None:
        """Close at once; whatever is unanswered fails with `reason`."""
        self._fail(reason or BrokerUnreachableError(f"The connection to {self.peer} was closed by this client."))
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close, and wait until the transport is gone."""
        if self._transport is None:
            return
        self._fail(BrokerUnreachableError(f"The connection to {self.peer} was closed by this client."))
        self._transport.close()
        await self.closed.wait()

    def _tls_hint(self) -> str:
        """In TLS 1.3 a server looks at the client's certificate when the client believes that all is well."""
        if self._answered or self._transport is None or self._transport.get_extra_info("ssl_object") is None:
            return ""
        return " Right after the TLS handshake: if it asks for certificates of its clients, set ssl.keystore.location."

    def _on_timeout(self, correlation_id: int) -> None:
        entry = self._pending.pop(correlation_id, None)
        if entry is None:
            return
        on_answer, _, name = entry
        late = RequestTimeoutError(
            f"{self.peer} did not answer {name} in time. It may be overloaded or cut off; raise request.timeout.ms if"
            " it needs longer."
        )
        on_answer(None, late)
        self.abort(BrokerUnreachableError(f"The connection to {self.peer} was given up: {name} timed out."))

    def _fail(self, reason: BarnabasError) -> None:
        if self._failure is None:
            self._failure = reason
        pending, self._pending = self._pending, {}
        for on_answer, timer, _ in pending.values():
            if timer is not None:
                timer.cancel()
            on_answer(None, self._failure)


def _settle(future: asyncio.Future[Any], response: Any, error: BarnabasError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(response)
    else:
        future.set_exception(error)


class ConnectionOpener(Protocol):
    """How a connection comes about; tests put brokers in memory behind it."""

    async def __call__(
        self, host: str, port: int, *, peer: str, client_id: str | None, setup_s: float, tls: ssl.SSLContext | None
    ) -> Connection: ...


async def open_connection(
    host: str, port: int, *, peer: str, client_id: str | None, setup_s: float, tls: ssl.SSLContext | None = None
) -> Connection:
    """Connect a transport; ApiVersions and SASL are the caller's. Raises BrokerUnreachableError or TlsError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(setup_s):
            _, connection = await loop.create_connection(
                lambda: Connection(loop, client_id, peer), host, port, ssl=tls, server_hostname=host if tls else None
            )
    except TimeoutError:
        raise BrokerUnreachableError(
            f"{peer} did not accept a connection within {setup_s:.0f} s (socket.connection.setup.timeout.ms)."
        ) from None
    except ssl.SSLError as error:
        raise handshake_error(peer, error) from error
    except OSError as error:
        why = error.strerror or str(error) or "it closed the connection"
        hint = "" if tls is None or isinstance(error, ConnectionRefusedError) else " Is this a TLS listener?"
        raise BrokerUnreachableError(f"{peer}: {why}.{hint}") from error
    return connection
