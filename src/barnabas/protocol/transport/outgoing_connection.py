"""Shell: one connection to a node, an `asyncio.BufferedProtocol` around the `ClientConnection` that does no I/O.

`send` writes at once and returns a future, so requests are on the wire in the order of the calls. Responses come back
in that order, too. A request that passes its deadline therefore closes the connection, as in Kafka's NetworkClient: no
response behind it could come sooner. A connection is used once; `ConnectionPool` opens the next one.

A large response is received into the memory that it stays in (`wire.frame_buffer`); its records are views of that
memory. Time and sockets are those of the running loop, so the simulator runs this module over its in-memory network.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.protocol.transport.connection_config import ConnectionConfig, ConnectionErrors, Destination
from barnabas.protocol.transport.peer_versions import NoCommonVersionError, PeerVersions
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.client_conn import RESPONSE_BYTES_MAX, ClientConnection
from barnabas.protocol.wire.frame_buffer import FrameBuffer, ReceiveMemory, write_pieces

OnResponse = Callable[[Any, BarnabasError | None], None]
"""Called once: with the response and None, or with None and the error."""

WRITE_HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
"""While a connection has more unsent bytes than this, `wait_writable` waits."""


STALLED_S: Final = 1.0
"""A request without a response for longer than this, and than the peer may wait for records, has stalled."""


KEEPALIVE_IDLE_S: Final = 10
KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_PROBES: Final = 3
"""TCP probes a host that is silent for `KEEPALIVE_IDLE_S`; after so many probes without an answer the connection is
lost. A host that loses power closes no connection, and the answer to a JoinGroup may take minutes: without probes the
members of a group would wait as long, although another broker coordinates the group already. Kafka's clients set
SO_KEEPALIVE too, but leave the times to the operating system, where they are two hours."""
_KEEPALIVE: Final = tuple(
    (getattr(socket, name), value)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPALIVE", KEEPALIVE_IDLE_S),  # macOS's name
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    )
    if hasattr(socket, name)
)


class _Pending(NamedTuple):
    """A request that has no response yet."""

    on_response: OnResponse
    timer: asyncio.TimerHandle | None
    name: str
    sent_at: float
    stalled_at: float


class OutgoingConnection(asyncio.BufferedProtocol):
    """A connection that is open, or was open. `open_connection` makes it."""

    def __init__(self, to: Destination, config: ConnectionConfig, errors: ConnectionErrors) -> None:
        self.to = to
        self.peer = str(to)
        self.host = to.host
        self.versions = PeerVersions({})
        loop = asyncio.get_running_loop()
        self.last_used = loop.time()
        self._loop = loop
        self._config = config
        self._errors = errors
        self._in_flight_max = config.in_flight_requests_max
        self._wire = ClientConnection(config.client_id)
        self._frames = FrameBuffer(RESPONSE_BYTES_MAX, config.memory or ReceiveMemory())
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._failure: str | None = None
        self._untrusted = False  # the failure is a TLS certificate that was rejected
        self._answered = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.Event()
        self.renewal: asyncio.TimerHandle | None = None
        """When the SASL session is renewed; None if it does not expire."""
        self._held: list[tuple[Any, int, float | None, OnResponse | None]] | None = None
        """The requests that wait while the session is renewed; None while it is not."""
        self.on_lost: Callable[[], None] | None = None
        """Called once when the connection has ended, whichever side has closed it."""
        self.on_stalled: Callable[[OutgoingConnection], None] | None = None
        """Called every `STALLED_S` while the oldest request has stalled. Set it before the first request."""
        self._watch: asyncio.TimerHandle | None = None

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is one by behaviour, not by class
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self._set_socket_options()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.target()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._on_response(*self._wire.read(frame))
        except BarnabasError as error:
            self.abort(
                f"{self.peer} sent something that is not a Kafka response ({error}). Is this the right port, and"
                " does security.protocol match the listener?"
            )

    def data_received(self, data: bytes) -> None:
        """For in-memory transports, which have bytes and no socket to receive from."""
        for count in write_pieces(data, self._frames.target):
            self.buffer_updated(count)

    def eof_received(self) -> bool:
        return False  # close: the peer will send no more responses

    def connection_lost(self, exc: Exception | None) -> None:
        self._frames.drop()
        if self.renewal is not None:
            self.renewal.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if isinstance(exc, ssl.SSLError):
            from barnabas.protocol.transport import tls

            if tls.is_rejection(exc):
                self._untrusted = self._failure is None
                self._fail(str(tls.handshake_error(self.to, exc, self._errors)))
        because = f": {exc}" if exc else ""
        waiting = f" with {len(self._pending)} requests unanswered" if self._pending else ""
        self._fail(f"{self.peer} closed the connection{waiting}{because}.{self._tls_hint()}")
        self._writable.set()
        self.closed.set()
        if self.on_lost is not None:
            self.on_lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- for the users of the connection

    @property
    def alive(self) -> bool:
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """The number of unanswered requests."""
        return len(self._pending)

    @property
    def stalled_since(self) -> float | None:
        """When the oldest request without a response was sent, if it has stalled; else None."""
        oldest = next(iter(self._pending.values()), None)
        return None if oldest is None or oldest.stalled_at > self._loop.time() else oldest.sent_at

    def choose_version(self, key: ApiKey, *, max_version: int | None = None, unstable: bool = False) -> int:
        """The version of an API to use on this connection (see `PeerVersions.choose`).

        Raises the exception of `ConnectionErrors.unsupported`.
        """
        try:
            return self.versions.choose(key, max_version=max_version, unstable=unstable)
        except NoCommonVersionError as error:
            raise self._errors.unsupported(f"{self.peer} {error}") from error

    def send(
        self, message: Any, version: int, deadline: float | None = None, *, expect_response: bool = True
    ) -> asyncio.Future[Any]:
        """Write a request now; the future gives its decoded response, or raises.

        `deadline` is in seconds of the loop's clock. `expect_response=False` is for Produce with acks=0: the future
        gives None at once.
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

    def post(self, message: Any, version: int, deadline: float, on_response: OnResponse) -> None:
        """As `send`, but `on_response` is called while the socket is read: one turn of the loop before a future's
        callbacks run. `on_response` must not raise, and is never called before `post` returns.
        """
        try:
            self._write(message, version, deadline, on_response)
        except BarnabasError as error:
            self._loop.call_soon(on_response, None, error)

    def hold_requests(self) -> None:
        """Keep later requests until `send_held_requests`: the SASL session is being renewed."""
        self._held = []

    def send_before_held(self, message: Any, version: int, deadline: float | None = None) -> asyncio.Future[Any]:
        """As `send`, for the requests that renew the session."""
        held, self._held = self._held, None
        try:
            return self.send(message, version, deadline)
        finally:
            self._held = held

    def send_held_requests(self) -> None:
        """Send the requests that have waited, in the order of the calls; they fail if the connection is lost."""
        held, self._held = self._held or [], None
        for message, version, deadline, on_response in held:
            try:
                self._write(message, version, deadline, on_response)
            except BarnabasError as error:
                if on_response is not None:
                    on_response(None, error)

    async def wait_writable(self, deadline: float) -> None:
        """Wait until fewer than `WRITE_HIGH_WATER_BYTES` are unsent, or the connection is lost.

        Raises the exception of `ConnectionErrors.connect_timed_out` at the deadline.
        """
        if self._writable.is_set():
            return
        waiter = self._loop.create_task(self._writable.wait())
        try:
            done, _ = await asyncio.wait((waiter,), timeout=max(deadline - self._loop.time(), 0.0))
        finally:
            waiter.cancel()
        if not done:
            message = f"{self.peer} does not receive earlier requests; the request was not sent before its deadline."
            raise self._errors.connect_timed_out(self.to, message)

    def abort(self, reason: str | None = None) -> None:
        """Close at once; unsent bytes are dropped. Unanswered requests fail with `reason`."""
        self._fail(reason or f"The connection to {self.peer} was closed by this side.")
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close, and wait until the transport is closed. Unanswered requests fail."""
        if self._transport is None:
            return
        self._fail(f"The connection to {self.peer} was closed by this side.")
        self._transport.close()
        await self.closed.wait()

    # ---- inside

    def _write(self, message: Any, version: int, deadline: float | None, on_response: OnResponse | None) -> None:
        if not self.alive or self._transport is None:
            raise self._unusable()
        waiting = len(self._pending) if self._held is None else len(self._pending) + len(self._held)
        if self._in_flight_max is not None and waiting >= self._in_flight_max:
            raise self._errors.unreachable(self.to, f"{self.peer} has {len(self._pending)} unanswered requests.", None)
        if self._held is not None:
            self._held.append((message, version, deadline, on_response))
            return
        correlation_id, parts = self._wire.send(message, version, expect_response=on_response is not None)
        self.last_used = now = self._loop.time()
        if on_response is not None:
            timer = None
            if deadline is not None:
                timer = self._loop.call_at(deadline, self._on_timeout, correlation_id)
            stalled_at = now + STALLED_S + getattr(message, "max_wait_ms", 0) / 1000.0
            self._pending[correlation_id] = _Pending(on_response, timer, type(message).__name__, now, stalled_at)
            if self._watch is None and self.on_stalled is not None:
                self._watch = self._loop.call_at(stalled_at, self._check_stalled)
        self._transport.writelines(parts)

    def _on_response(self, correlation_id: int, response: Any) -> None:
        entry = self._pending.pop(correlation_id, None)
        if entry is None:
            return
        if entry.timer is not None:
            entry.timer.cancel()
        self._answered = True
        entry.on_response(response, None)

    def _check_stalled(self) -> None:
        self._watch = None
        if self.stalled_since is not None and self.on_stalled is not None:
            self.on_stalled(self)
        if self._pending:
            oldest = next(iter(self._pending.values()))
            at = max(oldest.stalled_at, self._loop.time() + STALLED_S)
            self._watch = self._loop.call_at(at, self._check_stalled)

    def _on_timeout(self, correlation_id: int) -> None:
        entry = self._pending.pop(correlation_id, None)
        if entry is None:
            return
        name = entry.name
        late = self._errors.timed_out(
            f"{self.peer} did not answer {name} in time. It may be overloaded or cut off; raise request.timeout.ms if"
            " it needs longer."
        )
        entry.on_response(None, late)
        self.abort(f"The connection to {self.peer} was closed by this side, because {name} timed out.")

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        if self._pending:
            pending, self._pending = self._pending, {}
            error = self._errors.untrusted if self._untrusted else self._errors.lost
            for entry in pending.values():
                if entry.timer is not None:
                    entry.timer.cancel()
                entry.on_response(None, error(self._failure))

    def _unusable(self) -> KafkaError:
        """The error for a request that cannot be sent, because the connection is not open."""
        reason = self._failure or f"The connection to {self.peer} is closed."
        return self._errors.untrusted(reason) if self._untrusted else self._errors.unreachable(self.to, reason, None)

    def _tls_hint(self) -> str:
        """A sentence for the error message, if a TLS connection is lost before its first response; otherwise "".

        In TLS 1.3 a server checks the client's certificate only after the client has completed the handshake, so the
        server may have closed the connection because of the certificate.
        """
        if self._answered or self._transport is None or self._transport.get_extra_info("ssl_object") is None:
            return ""
        return " Right after the TLS handshake: if it asks for certificates of its clients, set ssl.keystore.location."

    def _set_socket_options(self) -> None:
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is None:
            return
        config = self._config
        for option, size in (
            (socket.SO_SNDBUF, config.send_buffer_bytes),
            (socket.SO_RCVBUF, config.receive_buffer_bytes),
        ):
            if size >= 0:
                found.setsockopt(socket.SOL_SOCKET, option, size)
        if found.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # macOS refuses options of a connection that the peer has closed
                found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in _KEEPALIVE:
                    found.setsockopt(socket.IPPROTO_TCP, option, value)


def _settle(future: asyncio.Future[Any], response: Any, error: BarnabasError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(response)
    else:
        future.set_exception(error)
        future.exception()  # marks it as retrieved: the sender may have been cancelled


class ConnectionOpener(Protocol):
    """How a connection is opened. Tests substitute an opener that connects to brokers in memory."""

    async def __call__(
        self,
        to: Destination,
        config: ConnectionConfig,
        errors: ConnectionErrors,
        *,
        setup_s: float,
        tls: ssl.SSLContext | None,
    ) -> OutgoingConnection: ...


async def open_connection(
    to: Destination,
    config: ConnectionConfig,
    errors: ConnectionErrors,
    *,
    setup_s: float,
    tls: ssl.SSLContext | None = None,
) -> OutgoingConnection:
    """Resolve the host, connect, and complete the TLS handshake, all within `setup_s` seconds.

    ApiVersions and SASL are left to the caller.

    Raises the exceptions of `ConnectionErrors.unreachable` and `.untrusted`.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(setup_s):
            _, connection = await loop.create_connection(
                lambda: OutgoingConnection(to, config, errors),
                to.host,
                to.port,
                ssl=tls,
                server_hostname=to.host if tls else None,
            )
    except TimeoutError as error:
        message = f"{to} did not accept a connection within {setup_s:g} s (socket.connection.setup.timeout.ms)."
        raise errors.unreachable(to, message, error) from None
    except ssl.SSLError as error:
        from barnabas.protocol.transport.tls import handshake_error

        raise handshake_error(to, error, errors) from error
    except OSError as error:
        why = error.strerror or str(error) or "it closed the connection"
        hint = "" if tls is None or isinstance(error, ConnectionRefusedError) else " Is this a TLS listener?"
        raise errors.unreachable(to, f"{to}: {why}.{hint}", error) from error
    return connection
